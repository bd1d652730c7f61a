"""From a fitted calibrator to production: one checkpoint, the gate, the registry, promotion."""
