"""params.yaml and dvc.yaml: what may be declared, read and changed."""
