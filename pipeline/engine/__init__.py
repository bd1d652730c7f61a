"""Work on days: the same function of every day, and what it made of a day kept for the next run."""
