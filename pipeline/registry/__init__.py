"""Versions and production: promotion, rollback, pull, history, by git, DVC and GTO."""
