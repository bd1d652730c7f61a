"""AdaCalib: field-level calibration of click and conversion models, from day logs to a release."""
