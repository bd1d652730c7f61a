"""Published figures of uncalibrated scores on a real advertiser's log, to the digits printed."""

import os
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.metrics.calibration import deviance_terms, field_rce, log_loss_terms
from pipeline.metrics.counts import count_responses

BESIDE = Path(__file__).parents[3] / "shared" / "data"
SCORES = Path(os.environ.get("ADACALIB_BENCH_DATA", BESIDE)) / "adwords_scores.parquet"

# Means over three seeds: LogLoss, Field-RCE, field deviance over responses.
FIGURES = {
    "2012-04-01 60/7/7": (0.11538, 0.489, 0.367),
    "2012-04-15 60/7/7": (0.10289, 1.021, 0.580),
    "2012-05-15 90/14/14": (0.09803, 1.212, 0.464),
    "2012-07-01 60/14/1": (0.10581, 0.610, 1.096),
    "2012-07-15 60/7/7": (0.12039, 1.317, 0.877),
}


@pytest.fixture(scope="module")
def test_rows():
    if not SCORES.is_file():
        pytest.skip("the AdWords scores are not there: set ADACALIB_BENCH_DATA to their folder")
    columns = ["window", "seed", "id", "impressions", "clicks", "uncalibrated_logit"]
    table = pq.read_table(SCORES, columns=columns, filters=pc.field("split") == "test")
    return table.to_pandas()


@pytest.mark.parametrize("window", FIGURES)
def test_uncalibrated_scores_have_the_published_figures(test_rows, window):
    figures = []
    for _, rows in test_rows[test_rows["window"] == window].groupby("seed"):
        _, value = np.unique(rows["id"].astype(str), return_inverse=True)
        columns = (
            rows[name].to_numpy() for name in ("uncalibrated_logit", "impressions", "clicks")
        )
        counts = count_responses(*columns, value, value.max() + 1)
        figures.append(
            (
                log_loss_terms(counts).ratio(),
                field_rce(counts).value,
                deviance_terms(counts).ratio(),
            )
        )
    measured = np.mean(figures, axis=0)
    assert np.abs(measured - FIGURES[window]).max() < 6e-4
    assert measured[0] == pytest.approx(FIGURES[window][0], abs=6e-6)
