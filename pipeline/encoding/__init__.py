"""Values of a log as what a network reads: field values and categories ↔ ids, numbers scaled."""
