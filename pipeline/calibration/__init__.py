"""Field-level calibration of logits: statistics of bins, the prior, AdaCalib and the baselines."""
