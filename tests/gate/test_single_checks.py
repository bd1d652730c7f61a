"""Each check by itself: tables, deployed file, map, drift and memorisation; all others are good."""

import math
import re
from typing import Any

import pytest

from tests.gate.evidence import (
    CALIBRATOR,
    GUARD,
    LOST,
    TABLES,
    changed,
    gain,
    good,
    verdict,
    with_pcoc,
)


def test_a_map_that_falls_is_refused_with_the_value_and_its_knots():
    fallen = "the calibrated logit of field value 'AA' falls by 0.9 between the knots -3 and -2"
    refused = verdict(good(), falls=(fallen,))
    assert not refused.passed
    assert fallen in refused.reasons[0]


@pytest.mark.parametrize(
    "tables",
    [
        {"passed": False, "breaches": ["K=5: 'AA' has falling bounds"]},
        {"passed": None},
        {"passed": "true"},
        {},
        None,
        [],
    ],
)
def test_tables_that_did_not_pass_their_checks_are_a_reason(tables):
    refused = verdict(good(), tables)
    assert not refused.passed
    assert "checks of the field statistics" in refused.reasons[0]
    if tables and tables.get("breaches"):
        assert "falling bounds" in refused.reasons[0]


@pytest.mark.parametrize("parity", [1.1e-6, math.nan, math.inf])
def test_a_deployed_file_that_is_not_its_table_is_refused(parity):
    refused = verdict(good(), parity=parity)
    assert re.search("deployed file and its table differ .* dvc repro merge", refused.reasons[0])


def changed_tables(name: str, **values: Any) -> dict[str, Any]:
    """The report of the tables with some values of drift or memorisation replaced."""
    return TABLES | {name: TABLES[name] | values}


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (changed_tables("drift", mix=0.5, mix_beyond_noise=0.49), "moved by 0.5 since the tables"),
        (
            changed_tables("drift", rate=0.9, rate_beyond_noise=0.8),
            "2.46 from the tables of the champion v0.0.3",
        ),
        (
            changed_tables("drift", rate=None, rate_beyond_noise=None),
            "have changed .* is unknown",
        ),
        (TABLES | {"drift": {"version": "v0.0.3", "why": "no tables"}}, r"\(no tables\)"),
        (TABLES | {"drift": None}, "the tables of the champion is unknown"),
        (changed_tables("memorisation", low=0.6, steeper=0.7), "memorised its training rows"),
        (changed_tables("memorisation", low=None), "memorised its training rows"),
        (
            changed_tables("memorisation", low=None, high=None, steeper=None),
            "is unknown: its scores fall into too few bins",
        ),
        (
            {k: v for k, v in TABLES.items() if k != "memorisation"},
            "is unknown: reports/tables.json does not say",
        ),
    ],
)
def test_drift_from_production_and_memorised_rows_are_reasons(tables, sentence):
    refused = verdict(good(), tables)
    assert not refused.passed
    assert re.search(sentence, refused.reasons[0])


WORSE = gain(-0.01, -0.02, -0.001)
ALONE: dict[str, dict[str, Any]] = {
    "tables": {"tables": TABLES | {"passed": False}},
    "parity": {"parity": 1e-3},
    "monotone": {"falls": ("it falls",)},
    "memorisation": {"tables": changed_tables("memorisation", low=0.6)},
    "mix_drift": {"tables": changed_tables("drift", mix_beyond_noise=0.3)},
    "rate_drift": {"tables": changed_tables("drift", rate_beyond_noise=0.8)},
    "label_maturity": {"maturity": {"maturity_days": 7, "young_days": ["2013-09-30"]}},
    "test_responses": {"responses": 999},
    "defined": {"methods/model/field_rce": None},
    "logloss_gain": {"gains/model/logloss": gain(0.01, -0.001, 0.02)},
    "daily_field_deviance": {"gains/model/daily_field_deviance": WORSE},
    "pcoc": {"methods/model": with_pcoc(1.2, 1.11, 1.3)},
    "newest_day": {"calibrator": CALIBRATOR | {"guard": GUARD | {"newest": LOST}}},
    "pcoc_of_largest_values": {"largest_field_values": [{"pcoc": 2.0, "low": 1.31, "high": 3.0}]},
    "distinct_outputs": {"methods/model/distinct_outputs": 2499},
    "field_auc_loss": {"methods/model/daily_field_auc": 0.6989},
    "auc_loss": {"methods/model/auc": 0.7049},
    "not_worse_than_isotonic": {"gains/isotonic/logloss": gain(0.03, 0.02, 0.04)},
    "not_worse_than_eb_platt": {"gains/eb_platt/logloss": gain(0.03, 0.02, 0.04)},
    "logloss_against_champion": {"champion/gains/logloss": WORSE | {"champion": 0.45}},
    "daily_field_deviance_against_champion": {
        "champion/gains/daily_field_deviance": WORSE | {"champion": 0.02}
    },
}


@pytest.mark.parametrize("name", ALONE)
def test_each_check_can_be_the_only_reason(name):
    """Just beyond its limit, with all other evidence good, each refuses by itself."""
    given_directly = {"tables", "parity", "falls", "calibrator"} & ALONE[name].keys()
    evaluation = good() if given_directly else changed(*next(iter(ALONE[name].items())))
    refused = verdict(evaluation, **(ALONE[name] if given_directly else {}))
    assert [check.name for check in refused.checks if not check.passed] == [name]


def test_every_check_is_in_that_list():
    assert {check.name for check in verdict(good()).checks} == set(ALONE)


def test_without_training_rows_nothing_is_memorised():
    none = changed_tables("memorisation", training_days=0, steeper=None, low=None, high=None)
    assert verdict(good(), none).passed


@pytest.mark.parametrize("gap", [{"steeper": 0.83, "low": 0.41, "high": 1.26}, {"ends_low": 0.9}])
def test_a_large_gap_is_a_warning_where_its_interval_leaves_it_open(gap):
    checks = {
        check.name: check for check in verdict(good(), changed_tables("memorisation", **gap)).checks
    }
    assert checks["memorisation"].passed
    assert "warning: perhaps more than 0.5" in checks["memorisation"].sentence
    usual = {check.name: check for check in verdict(good()).checks}
    assert "warning" not in usual["memorisation"].sentence
