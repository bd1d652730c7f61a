"""A landed log: its days, their manifest, landing, and the contract that they keep."""
