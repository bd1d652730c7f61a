"""The verdict: may this model replace the one in production, and if not, why."""
