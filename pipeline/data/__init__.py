"""Raw logs by day: landing, reading, days and time zones, field values and their ids."""
