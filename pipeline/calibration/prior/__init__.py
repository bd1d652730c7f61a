"""Empirical Bayes: what is known of a field value before its own bins are looked at."""
