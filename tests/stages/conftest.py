"""A small walk up to the evaluation."""

import pytest

from tests.stages.evaluation import day_table, write_walk


@pytest.fixture
def tables():
    return [day_table(seed) for seed in range(6)]


@pytest.fixture
def inputs(tmp_path, tables):
    return write_walk(tmp_path, tables)
