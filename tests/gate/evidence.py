"""Made-up evidence for the gate: tables and an evaluation that pass, and changed ones."""

import copy
from typing import Any

from pipeline.gate.judge import judge
from pipeline.gate.verdict import Verdict
from pipeline.params.sections import GateParams

PARAMS = GateParams(
    min_test_responses=1000,
    max_pcoc_error=0.1,
    far_pcoc_error=0.5,
    pcoc_margin=0.05,
    logloss_margin=0.005,
    max_value_pcoc_error=0.3,
    max_field_auc_loss=0.001,
    max_auc_loss=0.005,
    min_distinct_share=0.5,
    min_logloss_gain=0.0,
    champion_tolerance=0.0,
    max_mix_drift=0.25,
    max_rate_drift=0.7,
    max_memorisation=0.5,
)
NEWEST = {"day": "2013-09-30", "moved": 0.02, "limit": 0.07, "refused": False}
GUARD: dict[str, Any] = {"refused": [], "newest": NEWEST, "accepted": []}
CALIBRATOR: dict[str, Any] = {"chosen": "adacalib", "choose": "held_out", "guard": GUARD}
DRIFT = {
    "version": "v0.0.3",
    "mix": 0.02,
    "mix_noise": 0.001,
    "mix_beyond_noise": 0.019,
    "rate": 0.2,
    "rate_beyond_noise": 0.1,
}
MEMORISED = {"training_days": 60, "steeper": 0.1, "low": 0.05, "high": 0.15}
TABLES = {
    "passed": True,
    "checks": [{"name": "bounds"}],
    "breaches": [],
    "drift": DRIFT,
    "memorisation": MEMORISED,
}


def method(**values: float) -> dict[str, float]:
    """The metrics of one method."""
    usual = {
        "logloss": 0.45,
        "daily_field_deviance": 0.3,
        "field_deviance": 0.02,
        "field_rce": 0.06,
        "field_rce_low": 0.04,
        "field_rce_high": 0.09,
        "field_rce_floor": 0.03,
        "field_rce_coverage": 1.0,
        "daily_field_auc": 0.70,
        "auc": 0.72,
        "pcoc": 1.02,
        "pcoc_low": 0.96,
        "pcoc_high": 1.08,
        "distinct_outputs": 5000,
    }
    return usual | values


def gain(value: float, low: float, high: float) -> dict[str, Any]:
    """A gain as the evaluation writes it."""
    return {"value": value, "low": low, "high": high, "over": "days", "days": 28}


def good() -> dict[str, Any]:
    """An evaluation that passes."""
    gains = {"logloss": gain(0.010, 0.007, 0.013), "daily_field_deviance": gain(0.03, 0.01, 0.05)}
    return {
        "first_day": "2013-09-03",
        "last_day": "2013-09-30",
        "impressions": 43210,
        "responses": 4321,
        "champion": {
            "version": "v0.0.3",
            "readable": True,
            "why": None,
            "compared_days": 28,
            "gains": {
                "logloss": gain(0.001, -0.001, 0.003) | {"champion": 0.451},
                "daily_field_deviance": gain(0.002, -0.01, 0.014) | {"champion": 0.3},
                "field_deviance": gain(0.001, -0.01, 0.012) | {"champion": 0.022},
                "field_rce": gain(0.01, -0.01, 0.03) | {"champion": 0.07},
                "pcoc_error": gain(0.001, -0.01, 0.012) | {"champion": 0.03},
            },
        },
        "largest_field_values": [
            {"field_value": "AA", "pcoc": 1.1, "low": 1.0, "high": 1.2},
            {"field_value": "UA", "pcoc": 0.9, "low": 0.7, "high": 1.1},
        ],
        "maturity": {"maturity_days": 0, "newest_mature_day": None, "young_days": []},
        "methods": {
            "uncalibrated": method(logloss=0.46, auc=0.71),
            "isotonic": method(),
            "eb_platt": method(),
            "adacalib": method(),
            "model": method(),
        },
        "gains": {name: copy.deepcopy(gains) for name in ("isotonic", "eb_platt", "model")},
        "truth": {},
    }


def changed(place: str, value: Any) -> dict[str, Any]:
    """The good evaluation with one value, named by its path, replaced or (…) removed."""
    evaluation = good()
    *parents, key = place.split("/")
    inner = evaluation
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[key]
    else:
        inner[key] = value
    return evaluation


def verdict(
    evaluation: Any,
    tables: Any = TABLES,
    falls: tuple[str, ...] = (),
    parity: float = 1e-12,
    calibrator: dict[str, Any] = CALIBRATOR,
) -> Verdict:
    """The verdict on evidence, all that is not given being good."""
    return judge(tables, evaluation, PARAMS, calibrator=calibrator, falls=falls, parity=parity)


def with_pcoc(value: float, low: float, high: float) -> dict[str, float]:
    """The metrics of what ships with another PCOC."""
    return method(pcoc=value, pcoc_low=low, pcoc_high=high)


LOST = NEWEST | {"moved": -0.24, "refused": True}
