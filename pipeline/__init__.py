"""AdaCalib: field-level calibration of click and conversion models, from raw day logs to a release."""
