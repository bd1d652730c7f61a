"""Checks of the field statistics with great-expectations; nothing else here imports it."""
