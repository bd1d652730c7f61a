"""What every package stands on: errors, whole files, checksums, progress."""
