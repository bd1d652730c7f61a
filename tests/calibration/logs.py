"""Made-up scored logs for the kernel's tests, and how its tables are compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from pipeline.calibration.statistics import sums
from pipeline.formats import sort_keys
from pipeline.formats.scores import Scores

CANDIDATES, GRID = (2, 3, 6), 12
few_examples = settings(max_examples=25, deadline=None)


def scores_of(
    logit, value=None, impressions=None, responses=None, *, day=None, n_field_values=None
):
    """Scores of lists; what is left out is one value, one impression, no response, day 0."""
    n = len(logit)
    value = np.zeros(n, np.int32) if value is None else np.asarray(value, dtype=np.int32)
    return Scores(
        np.asarray(logit, dtype=np.float32),
        value,
        np.ones(n, np.int32) if impressions is None else np.asarray(impressions, np.int32),
        np.zeros(n, np.int32) if responses is None else np.asarray(responses, np.int32),
        np.zeros(n, np.int32) if day is None else np.asarray(day, np.int32),
        n_field_values or int(value.max(initial=0)) + 1,
    )


def random_scores(n=3000, *, n_field_values=40, n_days=5, seed=0, impressions=1, decimals=6):
    """A log of Zipf-like field values with some ties."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, n_field_values + 1)
    value = rng.choice(n_field_values, n, p=weights / weights.sum())
    logit = np.round(rng.normal(-2, 1.5, n) + 0.1 * value, decimals)
    counts = rng.integers(impressions, size=n) + (impressions == 1)
    responses = rng.binomial(counts, 1 / (1 + np.exp(-logit)))
    day = rng.integers(15_000, 15_000 + n_days, n)
    return scores_of(logit, value, counts, responses, day=day, n_field_values=n_field_values + 2)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TIED = st.sampled_from([-3.0, -0.0, 0.0, 1.0, float(np.nextafter(np.float32(1), np.float32(2)))])


@st.composite
def any_scores(draw, most_impressions=1):
    """Up to 40 rows of four field values with ties, neighbouring floats, and floats of any size."""
    logit = draw(st.sampled_from([TIED, FLOATS, TIED | st.floats(-5, 5, width=32)]))
    counts = st.just(1) if most_impressions == 1 else st.integers(0, most_impressions)
    row = st.tuples(
        logit, st.integers(0, 3), counts, st.integers(0, 9), st.integers(15_000, 15_003)
    )
    rows = draw(st.lists(row, max_size=40))
    responses = [r % (n + 1) for _, _, n, r, _ in rows]
    logits, values, counts, _, days = zip(*rows, strict=True) if rows else [()] * 5
    return scores_of(logits, values, counts, responses, day=days, n_field_values=5)


AGGREGATED = st.one_of(any_scores(), any_scores(most_impressions=4))


@contextmanager
def small_blocks(rows: int = 4, sparse: int = 8) -> Iterator[None]:
    """Blocks of few rows, so that little data takes every path: many blocks, threads, few slots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort_keys, "BLOCK", rows)
        patch.setattr(sums, "BLOCK", rows)
        patch.setattr(sums, "SPARSE", sparse)
        yield


def assert_same(a, b):
    """Two tables are equal to the last bit."""
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y, err_msg=f.name)
