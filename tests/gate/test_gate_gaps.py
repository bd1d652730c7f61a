"""No verdict passes on a number that is not there."""

import copy
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gate.evidence import TABLES, changed, good, verdict


def numbers(report: Any, path: str = "") -> list[str]:
    """The paths of all numbers in a report."""
    if isinstance(report, dict):
        return [p for key, value in report.items() for p in numbers(value, f"{path}/{key}")]
    return [path[1:]] if isinstance(report, (int, float)) else []


RATIOS = ("daily_field_deviance", "field_rce", "daily_field_auc", "auc", "pcoc")
BESIDE = (
    "gains/adacalib",
    "impressions",
    *(f"champion/gains/{name}" for name in ("field_deviance", "field_rce", "pcoc_error")),
)  # said, not judged
PLACES = [p for p in numbers(good()) if not p.endswith("/days") and not p.startswith(BESIDE)]


@given(
    st.lists(st.sampled_from(PLACES), min_size=1, max_size=4, unique=True),
    st.sampled_from([None, math.nan, math.inf, -math.inf]),
)
def test_no_verdict_passes_on_a_number_that_is_none_or_not_finite(places, nothing):
    assert not verdict(without(good(), places, nothing)).passed


def without(report: dict[str, Any], places: list[str], nothing: float | None) -> dict[str, Any]:
    """A report with the same in several places."""
    for place in places:
        *parents, key = place.split("/")
        inner = report
        for parent in parents:
            inner = inner[parent]
        inner[key] = nothing
    return report


def no_number(sentences: list[str]) -> list[str]:
    """The sentences in which a number is written that is none."""
    return [s for s in sentences if re.search(r"[+-]?\b(nan|inf)\b", s, re.IGNORECASE)]


@given(
    st.lists(st.sampled_from(numbers(good())), max_size=8, unique=True),
    st.lists(st.sampled_from(numbers(TABLES)), max_size=4, unique=True),
    st.sampled_from([None, math.nan, math.inf, -math.inf, 0]),
    st.sampled_from([0.0, math.nan, math.inf]),
)
def test_no_sentence_writes_a_number_that_is_none(places, of_tables, nothing, parity):
    evaluation = without(good(), places, nothing)
    tables = without(copy.deepcopy(TABLES), of_tables, nothing)
    checks = verdict(evaluation, tables, parity=parity).checks
    assert no_number([check.sentence for check in checks]) == []


def test_a_log_without_responses_is_told_so_and_what_helps():
    evaluation = good() | {"responses": 0}
    for measured in evaluation["methods"].values():
        measured.update(dict.fromkeys(RATIOS))
    evaluation["gains"]["model"]["daily_field_deviance"] = dict.fromkeys(["value", "low", "high"])
    evaluation["champion"]["gains"]["daily_field_deviance"] = {}
    sentences = {check.name: check.sentence for check in verdict(evaluation).checks}
    for name in ("pcoc", "auc_loss", "field_auc_loss", "daily_field_deviance", "defined"):
        assert "none of their impressions responded; take test days with" in sentences[name]
    assert (
        "28 days whose labels neither had seen, where it is undefined"
        in (sentences["daily_field_deviance_against_champion"])
    )


@pytest.mark.parametrize(
    "place",
    [
        "responses",
        "champion/gains",
        "largest_field_values",
        "maturity",
        "methods",
        "gains",
        "methods/model",
        "methods/uncalibrated",
        "methods/eb_platt",
        "methods/model/logloss",
        "methods/model/field_rce",
        "methods/isotonic/pcoc",
        "gains/model",
        "gains/model/logloss",
        "gains/model/logloss/low",
        "gains/model/daily_field_deviance",
        "gains/isotonic",
    ],
)
@pytest.mark.parametrize("value", [..., None, {}, "", True])
def test_no_verdict_passes_where_something_it_needs_is_missing_or_no_number(place, value):
    assert not verdict(changed(place, value)).passed


@pytest.mark.parametrize(
    "evaluation", [{}, {"methods": [], "gains": []}, {"methods": {"model": {}}}]
)
def test_an_empty_evaluation_is_refused(evaluation):
    refused = verdict(evaluation)
    assert not refused.passed
    assert not any("impressions responded" in reason for reason in refused.reasons)


def test_a_test_day_without_responses_is_undefined_and_not_promoted():
    """Every ratio to the responses is undefined."""
    evaluation = good()
    evaluation["responses"] = 0
    for measured in evaluation["methods"].values():
        measured.update(dict.fromkeys(RATIOS))
    reasons = verdict(evaluation).reasons
    assert any("too few responses to tell: the test days have 0" in reason for reason in reasons)
    assert any("undefined on the test days" in reason for reason in reasons)


NAMES = st.sampled_from(["methods", "gains", "model", "logloss", "pcoc", "responses"])
VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3)


@given(
    st.dictionaries(
        NAMES, st.recursive(VALUES, lambda inner: st.dictionaries(NAMES, inner), max_leaves=12)
    )
)
def test_any_report_gets_a_verdict_and_none_of_these_passes(evaluation):
    refused = verdict(evaluation)
    assert not refused.passed
    assert all(refused.reasons)
    assert no_number(refused.reasons) == []
