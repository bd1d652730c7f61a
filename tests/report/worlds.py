"""The reports and sums of a small run, made without the stages."""

from typing import Any

import numpy as np
import pandas as pd

from pipeline.formats.maps import PiecewiseLinearMap, from_knots, identity_map
from pipeline.report.page import page_sums, pictured, render, specifications
from pipeline.report.result_tables import GROUPS

METHODS = ("uncalibrated", "isotonic", "eb_platt", "adacalib", "frozen", "model")
NAMES: list[str | None] = [None, '<b>"A"$_{$</b></script>', "plain", "B\x1f2"]


def reports(passed: bool = True, **metrics: Any) -> dict[str, dict[str, Any]]:
    """The four reports of a small run, some metrics replaced."""
    values = {
        "logloss": 0.51,
        "daily_field_deviance": 0.31,
        "daily_field_deviance_floor": 0.29,
        "field_deviance": 0.12,
        "field_rce": 0.08,
        "field_rce_low": 0.06,
        "field_rce_high": 0.1,
        "field_rce_floor": 0.05,
        "field_rce_coverage": 0.98,
        "field_rce_values_left_out": 1,
        "field_rce_absolute_error_left_out": 3.2,
        "distinct_outputs": 512,
        "daily_field_auc": 0.71,
        "daily_field_auc_coverage": 0.97,
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
            "waiting": ["2024-01-08"],
            "label_growth": [
                {"age": 0, "days": 3, "share": 0.42},
                {"age": 2, "days": 1, "share": None},
            ],
            "warnings": ["day 2024-01-02: it has 9 impressions"],
        },
        "tables": {
            "passed": True,
            "checks": ["increasing bounds"],
        },
        "evaluation": {
            "first_day": "2024-01-06",
            "last_day": "2024-01-07",
            "rows": 600,
            "impressions": 600,
            "responses": 30,
            "field_values": 2,
            "methods": dict.fromkeys(METHODS, values | metrics),
            "gains": dict.fromkeys(METHODS[1:], gain),
            "procedure": {
                "horizon_days": 1,
                "learned_until": "2024-01-05",
                "shipped_until": "2024-01-07",
                "base_until": "2024-01-03",
                "base_age_days": [3, 4, 5],
            },
            "age": {
                "cost": {"value": 0.0004, "low": 0.0001, "high": 0.0007},
                "by_day": [
                    {"day": "2024-01-06", "days_since_label": 1, "rolling": 0.5, "frozen": 0.5},
                    {"day": "2024-01-07", "days_since_label": 2, "rolling": 0.5, "frozen": 0.51},
                ],
            },
            "new_values": dict.fromkeys(GROUPS, group_of_new_values()),
            "truth": {"excess_logloss": dict.fromkeys(METHODS, 0.0012)},
        },
        "gate": {
            "passed": passed,
            "model_sha256": "c0ffee" * 10,
            "verdict": "pass" if passed else "refuse",
            "last_day": "2013-10-07",
            "reasons": [] if passed else ["too few responses to tell: 30 of 1,000"],
            "checks": [
                {
                    "name": "responses",
                    "passed": passed,
                    "sentence": "30 <responses>",
                    "answer": None,
                },
                {
                    "name": "pcoc",
                    "passed": True,
                    "sentence": "it is 1.01",
                    "answer": "cannot tell",
                    "limit": 0.1,
                },
            ],
        },
    }


def group_of_new_values() -> dict[str, Any]:
    """What the evaluation says of some field values; they have no response."""
    ranking = dict.fromkeys(("field_rce", "auc", "daily_field_auc"))
    deviances = {"daily_field_deviance": 0.2, "field_deviance": 0.1, "ece": 0.01}
    of_method = (
        ranking | deviances | {"logloss": 0.1, "pcoc": None, "pcoc_low": 0.4, "pcoc_high": None}
    )
    methods = dict.fromkeys(("uncalibrated", "model"), of_method)
    return {"impressions": 30, "responses": 0, "methods": methods}


CALIBRATOR = {
    "chosen_bins": [0, 5, 10, 10],
    "responses": [0.0, 60.0, 120.0, 300.0],
    "guard": {"refused": [{"day": "2024-01-04", "what": "all rows", "moved": -0.24}]},
    "chosen": "adacalib",
    "choose": "held_out",
    "held_out": {
        "logloss": {"adacalib": 0.5, "identity": 0.6},
        "excess": {"adacalib": 0.0, "identity": 0.1},
        "standard_error": {"adacalib": 0.0, "identity": 0.02},
    },
}


MANIFEST = {
    "base": {"field": {"columns": ["carrier"]}},
    "conventions": {"keep_rate": None, "weight": None},
    "lineage": {
        "params": {"log": {"format": "flights"}},
        "data": {"days": {"test": ["2024-01-06"]}},
    },
}


def counts(n_field_values: int = 4, days: int = 2) -> pd.DataFrame:
    """Sums by method, day and field value; the last field value has no responses."""
    random = np.random.default_rng(3)
    keys = [(m, d, z) for m in METHODS for d in range(days) for z in range(n_field_values)]
    frame = pd.DataFrame(keys, columns=["method", "day", "field_value_id"])
    size = 300 + 10 * frame["field_value_id"].to_numpy()
    responses = np.where(frame["field_value_id"] == n_field_values - 1, 0, size // 20)
    return frame.assign(
        day=frame["day"] + 19_700,
        impressions=size,
        responses=responses,
        expected_responses=size * 0.05 * random.uniform(0.8, 1.2, len(frame)),
        expected_variance=size * 0.04,
        log_loss=size * 0.2,
    )


def bins(n_field_values: int = 4, per_value: int = 10) -> pd.DataFrame:
    """Equal-frequency bins of all rows (-1) and of every field value, rising rates."""
    keys = [(m, z, b) for m in METHODS for z in range(-1, n_field_values) for b in range(per_value)]
    frame = pd.DataFrame(keys, columns=["method", "field_value_id", "bin_id"])
    rate = 0.01 + 0.02 * frame["bin_id"].to_numpy()
    last = frame["field_value_id"].to_numpy() == n_field_values - 1
    return frame.assign(
        impressions=60,
        responses=np.where(last, 0, np.round(60 * rate)).astype(int),
        expected_responses=60 * rate,
        logit_sum=60 * np.log(rate / (1 - rate)),
    )


def maps(n_field_values: int = 4) -> dict[str, PiecewiseLinearMap]:
    """The identity and bent maps."""
    knots = [np.array([-4.0, -2.0])] * n_field_values
    heights = [np.array([-3.5 + 0.01 * z, -2.5]) for z in range(n_field_values)]
    ones = np.ones(n_field_values)
    bent = from_knots(knots, heights, ones, ones)
    names = ("isotonic", "eb_platt", "adacalib")
    return {"identity": identity_map(n_field_values), **dict.fromkeys(names, bent)}


def page(
    passed: bool = True,
    chosen: str = "adacalib",
    vega: str = "",
    worth: pd.DataFrame | None = None,
    **metrics: Any,
) -> str:
    """The page of the small run, without the script that draws unless it is given."""
    said, all_maps = reports(passed, **metrics), maps()
    if worth is not None:
        said["evaluation"]["worth"] = {"methods": {}, "field_values": []}
    shown = pictured(said["evaluation"], chosen)
    carried = page_sums(
        counts(),
        bins(),
        all_maps,
        field_values=NAMES,
        chosen_bins=[0, 5, 10, 10],
        listed=3,
        shown=shown,
        evaluation=said["evaluation"],
        worth=worth,
    )
    specs = specifications(all_maps, shown)
    about = CALIBRATOR | {"chosen": chosen}
    return render(said, carried, specs, manifest=MANIFEST, calibrator=about, vega=vega)
