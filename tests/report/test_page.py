"""The report says the verdict first, needs no network, and says undefined where a metric is."""

import re

import numpy as np
import pandas as pd
import pytest

from pipeline.report.page import render
from pipeline.report.pictures import reliability

METHODS = ("uncalibrated", "isotonic", "eb_platt", "adacalib", "model")


def reports(passed=True, **metrics):
    """The four reports of a small run."""
    values = {
        "logloss": 0.51,
        "field_deviance": 0.12,
        "field_rce": 0.08,
        "field_rce_low": 0.06,
        "field_rce_high": 0.1,
        "field_rce_floor": 0.05,
        "field_rce_coverage": 0.98,
        "field_auc": 0.71,
        "auc": 0.73,
        "pcoc": 1.01,
    }
    gain = {"logloss": {"value": 0.002, "low": 0.001, "high": 0.003}}
    return {
        "validation": {
            "days": 7,
            "first_day": "2024-01-01",
            "last_day": "2024-01-07",
            "impressions": 2000,
            "responses": 90,
        },
        "tables": {"passed": True, "checks": ["increasing bounds"]},
        "evaluation": {
            "first_day": "2024-01-06",
            "last_day": "2024-01-07",
            "rows": 600,
            "impressions": 600,
            "responses": 30,
            "field_values": 2,
            "methods": dict.fromkeys(METHODS, values | metrics),
            "gains": dict.fromkeys(METHODS[1:], gain),
            "truth": {"excess_logloss": dict.fromkeys(METHODS, 0.0012)},
        },
        "gate": {
            "passed": passed,
            "verdict": "pass" if passed else "refuse",
            "reasons": [] if passed else ["too few responses to tell: 30 of 1,000"],
            "checks": [{"name": "responses", "passed": passed, "sentence": "30 <responses>"}],
        },
    }


def sums(columns):
    """Additive sums by method and the given key columns, two field values."""
    rows = [
        {
            "method": method,
            "impressions": 300,
            "responses": 15 - 15 * key,
            "expected_responses": 14.0,
            "expected_variance": 13.0,
            "log_loss": 50.0,
        }
        | dict.fromkeys(columns, key)
        for method in METHODS
        for key in (0, 1)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def page():
    """A page made from small reports."""

    def make(**changes):
        bins = sums(["field_value_id", "bin_id"])
        overall = bins.assign(field_value_id=-1)
        return render(
            reports(**changes),
            sums(["field_value_id"]),
            pd.concat([bins, overall]),
            field="carrier",
            field_values=[None, '<b>"A"$_{$</b>'],
            shipped="adacalib",
            shown=2,
        )

    return make


def test_the_verdict_comes_before_every_figure(page):
    text = page(passed=False)
    assert text.index("This model was refused") < text.index("<table>")
    assert text.index("too few responses to tell") < text.index("<table>")


def test_the_page_loads_nothing_from_outside(page):
    links = re.findall(r'(?:src|href)="([^"]*)"', page())
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page()
    assert "<script" not in page()


def test_equal_reports_give_equal_bytes(page):
    assert page() == page()


def test_what_is_undefined_says_so(page):
    text = page(field_rce=None, field_rce_low=None)
    assert "undefined" in text
    assert "None" not in text.replace("None,", "")
    assert "nan" not in re.sub(r"<[^>]*>", "", text).lower().split()


def test_names_from_the_log_are_text_not_markup(page):
    assert "<b>" not in page()
    assert 'of <b>"A"' not in page()
    assert "&lt;b&gt;&#34;A&#34;$_{$&lt;/b&gt;" in page()


def test_a_picture_of_bins_without_responses_still_draws():
    bins = {
        "impressions": np.array([10.0, 10.0, 0.0]),
        "responses": np.array([0.0, 0.0, 0.0]),
        "expected_responses": np.array([0.1, 0.2, 0.0]),
    }
    assert reliability({"model": bins}, "t").startswith("<svg")
