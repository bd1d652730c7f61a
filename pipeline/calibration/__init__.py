"""Field-level calibration of logits: statistics of bins, the anchor, AdaCalib and its rivals."""
