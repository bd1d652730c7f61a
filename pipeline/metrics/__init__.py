"""How good predictions are, from additive counts: calibration, ranking, and how sure one may be."""
