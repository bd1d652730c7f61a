"""adacalib …: one module per group of commands, and how they answer."""
