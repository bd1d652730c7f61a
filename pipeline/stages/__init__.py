"""One module per stage of dvc.yaml: read, call, write."""
