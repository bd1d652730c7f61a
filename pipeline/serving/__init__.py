"""Scoring where the pipeline is not: onnxruntime, numpy and pyarrow, a checksum before anything."""
