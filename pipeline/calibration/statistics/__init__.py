"""The statistics kernel: bins, cells and counts of every field value."""
