"""AdaCalib, variant crossfit: residual knots on a base map, learned out of sample."""
