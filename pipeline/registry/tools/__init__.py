"""Outside programs: git, DVC, GTO; and what keeps them in order."""
