"""The verdict, on made-up evaluations."""

import json
import math
import re
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from pipeline.gate.judge import judge
from pipeline.gate.verdict import Verdict
from tests.gate.evidence import (
    CALIBRATOR,
    GUARD,
    LOST,
    NEWEST,
    PARAMS,
    TABLES,
    changed,
    gain,
    good,
    verdict,
    with_pcoc,
)

SAMPLED = with_pcoc(7.9, 7.5, 8.3)


def test_good_evidence_passes_and_every_check_says_what_it_saw():
    passing = verdict(good())
    assert passing.passed
    assert passing.reasons == []
    assert len({check.name for check in passing.checks}) == len(passing.checks) == 21
    sentences = " ".join(check.sentence for check in passing.checks)
    for number in ("4321", "+0.01 (interval +0.007 to +0.013)", "1.02", "0.70000"):
        assert number in sentences


def test_a_verdict_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        verdict(good()).checks = ()  # type: ignore[misc]


def test_no_checks_at_all_are_no_pass():
    assert not Verdict(()).passed


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (
            "responses",
            287,
            "too few responses to tell: the test days have 287, a verdict needs 1000",
        ),
        ("methods/model", SAMPLED, r"\(PCOC\) is 7.9 .* sampled without saying so"),
        ("methods/model", SAMPLED, r"mean probability is 0\.79 where 0\.1 resp.*keep_rate: 0\.03"),
        ("methods/model", with_pcoc(0.85, 0.8, 0.89), r"\(PCOC\) is 0.85 .*more than 0.1 from 1"),
        (
            "largest_field_values",
            [{"field_value": "AA", "pcoc": 1.5, "low": 1.35, "high": 1.7}],
            r"PCOC of field value 'AA' is 1\.5 \(band 1\.35 to 1\.7\), surely more than 0\.3",
        ),
        (
            "largest_field_values",
            [{"field_value": "AA", "pcoc": 0.5, "low": 0.4, "high": 0.6}],
            "PCOC of field value 'AA' is 0.5",
        ),
        (
            "largest_field_values",
            [{"field_value": "AA", "pcoc": None, "low": 1.4, "high": None}],
            r"PCOC of field value 'AA' is at least 1\.4, without a response, surely more than 0\.3",
        ),
        ("methods/model/distinct_outputs", 97, "97 different outputs, the base model has 5000"),
        (
            "champion/gains/logloss",
            gain(-0.01, -0.02, -0.001) | {"champion": 0.451},
            r"LogLoss gains -0\.01 \(.*\) over the champion v0\.0\.3 .* the champion is better",
        ),
        (
            "champion/gains/daily_field_deviance",
            gain(-0.01, -0.02, -0.001) | {"champion": 0.02},
            "field deviance gains -0.01",
        ),
        ("champion/readable", False, "cannot score the test days .* adacalib override --reason"),
        (
            "champion",
            {"version": "v0.0.3", "readable": True, "compared_days": 0, "gains": {}},
            r"against the champion v0\.0\.3, which has learned from every .*: test on later days",
        ),
        (
            "maturity",
            {"maturity_days": 7, "young_days": ["2013-09-28", "2013-09-29"]},
            r"2 calibration or test days, the first 2013-09-28, .*log\.maturity_days",
        ),
        (
            "methods/model/daily_field_auc",
            0.698,
            "Field-AUC goes from 0.70000 to 0.69800, a loss above",
        ),
        ("methods/model/auc", 0.70, "AUC goes from 0.71000 to 0.70000, a loss above 0.005"),
        ("methods/model/field_rce", None, r"undefined on the test days: model\.field_rce;"),
        ("gains/model/logloss", gain(0.01, -0.001, 0.02), "whole interval must lie above 0"),
        (
            "gains/model/logloss",
            gain(0.0, 0.0, 0.0),
            "is the uncalibrated model itself, which gains nothing",
        ),
        ("gains/model/daily_field_deviance", gain(-0.02, -0.03, -0.01), "served worse than before"),
        ("gains/eb_platt/logloss", gain(0.03, 0.02, 0.04), "worse than eb_platt"),
        ("gains/isotonic/logloss", gain(0.03, 0.02, 0.04), "worse than isotonic"),
    ],
)
def test_evidence_against_a_model_is_named_with_its_numbers_and_the_next_step(
    place, value, sentence
):
    refused = verdict(changed(place, value))
    assert not refused.passed
    assert re.search(sentence, refused.reasons[0])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("responses", 1000),
        ("methods/model", with_pcoc(1.05, 1.01, 1.09)),
        ("methods/model/daily_field_auc", 0.6995),
        ("champion", None),
        ("champion/gains/logloss", gain(0.0, 0.0, 0.0) | {"champion": 0.45}),
        ("champion/gains/logloss", gain(-0.001, -0.01, 0.0001) | {"champion": 0.45}),
        ("methods/model/distinct_outputs", 2500),
        (
            "largest_field_values",
            [{"field_value": "AA", "pcoc": None, "low": 0.2, "high": None}],  # no responses yet
        ),
        ("gains/model/daily_field_deviance", gain(-0.001, -0.01, 0.008)),
        ("gains/eb_platt/logloss", gain(0.011, 0.008, 0.014)),
    ],
)
def test_what_is_within_the_limits_or_within_noise_passes(place, value):
    assert verdict(changed(place, value)).passed


UNSURE = with_pcoc(1.08, 0.93, 1.23)


def unsure(model: dict[str, float], **champion: Any) -> Any:
    """The check of PCOC of what ships, with some gains over the champion replaced."""
    evaluation = changed("methods/model", model)
    evaluation["champion"]["gains"] |= champion
    (check,) = (c for c in verdict(evaluation).checks if c.name == "pcoc")
    return check


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (0.91, 1.09, "within"),
        (0.9, 1.11, "cannot tell"),
        (0.85, 0.95, "cannot tell"),
        (1.11, 1.3, "beyond"),
        (0.7, 0.89, "beyond"),
    ],
)
def test_a_limit_with_an_interval_has_three_answers(low, high, answer):
    evaluation = changed("methods/model", with_pcoc((low + high) / 2, low, high))
    assert [c.answer for c in verdict(evaluation).checks if c.name == "pcoc"] == [answer]


def test_where_test_days_cannot_tell_calibration_days_that_were_forecast_are_asked():
    """They cannot make up for test days that are undefined, nor overrule ones that can tell."""
    ends = (1.0, 0.95, 1.05), (1.2, 1.15, 1.25)
    within, beyond = (dict(zip(("value", "low", "high"), e, strict=True)) for e in ends)
    answers = []
    for model in ((1.0, 0.85, 1.15), (1.0, 0.94, 1.06), (math.nan, math.nan, math.nan)):
        for more in (within, beyond, within | {"calibration_days": []}):
            evaluation = changed("methods/model", with_pcoc(*model)) | {"champion": None}
            evaluation["pcoc"] = {"calibration_days": ["2013-08-06"]} | more
            (check,) = (c for c in verdict(evaluation).checks if c.name == "pcoc")
            answers.append(check.answer)
            assert check.passed == (check.answer == "within")
    unsure, sure, undefined = answers[:3], answers[3:6], answers[6:]
    assert unsure == ["within", "beyond", "cannot tell"]
    assert sure == ["within"] * 3
    assert undefined == [None] * 3


def test_few_test_days_are_beyond_where_days_before_leave_no_doubt():
    beyond = with_pcoc(1.2, 1.11, 1.3)
    calm, apart = ({"low": low, "high": high} for low, high in ((1.105, 1.31), (0.8, 1.7)))
    for few_days, answer in ((calm, "beyond"), (apart, "within")):
        evidence = {"value": 1.01, "low": 0.95, "high": 1.07, "calibration_days": ["2013-09-01"]}
        judged = verdict(
            {**changed("methods/model", beyond), "pcoc": evidence | {"few_days": few_days}}
        )
        (check,) = [check for check in judged.checks if check.name == "pcoc"]
        assert check.answer == answer


def test_where_nobody_can_tell_a_later_version_passes_if_it_is_surely_not_worse():
    """Never a first one, and never where its own PCOC is far off."""
    margin = PARAMS.logloss_margin * 0.451
    own = {"champion": 0.451}
    assert unsure(UNSURE).passed
    assert unsure(UNSURE, pcoc_error=gain(-0.03, -0.049, 0.01)).passed
    assert not unsure(UNSURE, pcoc_error=gain(-0.03, -0.051, 0.01)).passed
    assert unsure(UNSURE, logloss=gain(0, -0.99 * margin, 0.001) | own).passed
    assert not unsure(UNSURE, logloss=gain(0, -1.01 * margin, 0.001) | own).passed
    few = unsure(UNSURE, pcoc_error=gain(0.01, math.nan, math.nan))
    assert not few.passed
    assert "first version" not in few.sentence
    assert not unsure(with_pcoc(1.51, 0.93, 2.1)).passed
    first = changed("methods/model", UNSURE) | {"champion": None}
    assert [c.name for c in verdict(first).checks if not c.passed] == ["pcoc"]


def test_of_single_values_only_what_is_surely_beyond_refuses():
    """And of how many nobody can tell is said: some have too few responses for any answer."""
    rows = [
        {"field_value": "AA", "pcoc": 1.0, "low": 0.9, "high": 1.1},
        {"field_value": "UA", "pcoc": 1.2, "low": 0.8, "high": 1.6},
    ]
    passing = verdict(changed("largest_field_values", rows))
    assert passing.passed
    assert [c.answer for c in passing.checks if c.answer] == ["within", "cannot tell"]
    assert "of 1 nobody can tell" in " ".join(c.sentence for c in passing.checks)


@pytest.mark.parametrize(
    ("guard", "passed"),
    [
        (GUARD, True),
        (GUARD | {"newest": None}, True),
        (GUARD | {"newest": NEWEST | {"limit": None}}, True),
        (GUARD | {"newest": LOST | {"limit": None}}, False),
        (GUARD | {"newest": LOST}, False),
        (GUARD | {"newest": NEWEST | {"refused": None}}, False),
        (GUARD | {"newest": NEWEST | {"moved": None}}, False),
        (None, False),
    ],
)
def test_a_newest_day_that_is_not_sound_refuses_and_says_how_it_is_accepted(guard, passed):
    entry = {"day": "2013-09-30", "what": "UA", "moved": -0.24, "limit": 0.07}
    calibrator = CALIBRATOR | {"guard": guard and guard | {"refused": [entry]}}
    judged = verdict(good(), calibrator=calibrator)
    assert judged.passed is passed
    if guard == GUARD | {"newest": LOST}:
        assert 'calibrate.accepted_days: ["2013-09-30"]' in judged.reasons[0]
        assert "(UA)" in judged.reasons[0]


def test_a_newest_day_that_was_accepted_is_not_called_a_sound_one():
    newest = LOST | {"refused": False}
    judged = verdict(good(), calibrator=CALIBRATOR | {"guard": GUARD | {"newest": newest}})
    (sentence,) = (check.sentence for check in judged.checks if check.name == "newest_day")
    assert judged.passed
    assert "accepted by name" in sentence


def test_a_sure_loss_is_not_called_luck():
    worse, unsure = (
        verdict(changed("gains/model/logloss", gain(-0.02, -0.03, high))).reasons
        for high in (-0.01, 0.01)
    )
    assert "luck" not in worse[0]
    assert "luck" in unsure[0]


def test_a_choice_that_was_made_already_is_no_advice():
    worse = changed("gains/isotonic/logloss", gain(0.03, 0.02, 0.04))
    for choose, advised in (("held_out", False), ("always", True)):
        (reason,) = verdict(worse, calibrator=CALIBRATOR | {"choose": choose}).reasons
        assert reason.endswith("calibrate.choose: held_out") == advised


def test_checks_are_plain_values_that_json_can_carry():
    from dataclasses import asdict

    from pipeline.core.files import finite_json

    for check in verdict(changed("methods/model/pcoc", None)).checks:
        json.dumps(finite_json(asdict(check)), allow_nan=False)


def test_an_evaluation_that_does_not_say_whether_there_is_a_champion_is_no_pass():
    """Nothing in production is a fact that evaluate writes; silence is none."""
    assert verdict(changed("champion", None)).passed
    assert not verdict(changed("champion", ...)).passed


def test_a_tolerance_is_a_share_of_what_the_champion_has():
    worse = changed("champion/gains/logloss", gain(-0.01, -0.02, -0.001) | {"champion": 0.5})
    tolerant = PARAMS.model_copy(update={"champion_tolerance": 0.002})
    good_else: dict[str, Any] = {"calibrator": CALIBRATOR, "falls": (), "parity": 0.0}
    assert judge(TABLES, worse, tolerant, **good_else).passed
    strict = PARAMS.model_copy(update={"champion_tolerance": 0.0019})
    assert not judge(TABLES, worse, strict, **good_else).passed


def test_the_same_procedure_is_never_worse_than_itself():
    """With a promotion each day, one in forty intervals would lie below zero by luck alone."""
    worse = changed("champion/gains/logloss", gain(-0.01, -0.02, -0.001) | {"champion": 0.5})
    assert not verdict(worse).passed
    worse["champion"]["same_procedure"] = True
    passing = verdict(worse)
    assert passing.passed
    assert "the same procedure" in " ".join(check.sentence for check in passing.checks)
    worse["champion"]["gains"]["logloss"]["low"] = None
    assert not verdict(worse).passed


def test_only_what_is_wrong_with_the_artifact_itself_is_structural():
    checks = verdict(good()).checks
    assert [c.name for c in checks if c.structural] == ["tables", "parity", "monotone"]


def test_every_refusal_is_one_sentence_with_its_limit_or_next_step():
    """A verdict is read by people who did not write it."""
    nothing = verdict({}, {}, falls=("it falls",), parity=math.nan, calibrator={})
    assert not any(check.passed for check in nothing.checks)
    assert all(not reason.endswith(".") and len(reason) > 20 for reason in nothing.reasons)
