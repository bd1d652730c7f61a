"""What a test of two randomised arms says: sample ratio, effects, calibration of what served."""
