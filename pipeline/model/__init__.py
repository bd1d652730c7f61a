"""The base model: features, network, training with exact resume, scoring."""
