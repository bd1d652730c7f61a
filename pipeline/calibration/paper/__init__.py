"""AdaCalib as published."""
