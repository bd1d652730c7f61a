"""Fixtures of logs and landing."""

import pytest


@pytest.fixture
def few_parts(monkeypatch):
    """A small log is cut into 8 parts; only their number changes."""
    monkeypatch.setattr("pipeline.data.ingest.ali_ccp.PARTS", 8)
