"""What travels between stages, as types and as files: days, scores, tables, maps."""
