"""ONE checkpoint: bundle, runtimes, the proof that they agree, lineage."""
