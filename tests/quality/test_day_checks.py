"""Raw days beside their recent days: warnings apart from errors, and nothing passes on nothing."""

import numpy as np
import pytest

from pipeline.quality.day_checks import check_days, column_frame, day_frame

DAYS = [f"2024-01-{day:02}" for day in range(1, 21)]
USUAL = {"rows": 1000, "impressions": 1000, "responses": 50, "field_nulls": 0, "new_rows": 0}
LIMITS = {
    "impressions_factor": {"warning": 3.0, "error": 100.0},
    "response_rate_factor": {"warning": 2.0, "error": 8.0},
    "null_share_rise": {"warning": 0.2, "error": 0.5},
    "new_value_share": {"warning": 0.3, "error": 1.0},
}


def breaches(last: dict, nulls: int | None = 0, limits: dict = LIMITS, days=DAYS) -> dict:
    """(rule, severity) → sentence, for a log whose last day is `last`, others as usual."""
    facts = {day: dict(USUAL) for day in days}
    facts[days[-1]] |= last
    missing = {day: {"price": 10} for day in days}
    missing[days[-1]]["price"] = nulls
    rows = {day: fact["rows"] for day, fact in facts.items()}
    checks = check_days(day_frame(facts, 14), column_frame(missing, rows, 14), limits)
    return {(check.name, check.severity): check.breach for check in checks if check.breach}


def test_days_like_the_days_before_pass():
    assert breaches({}) == {}
    assert breaches({"impressions": 500, "responses": 40}) == {}


def test_a_warning_is_no_error_and_an_error_is_a_warning_too():
    assert set(breaches({"impressions": 4000, "rows": 4000, "responses": 200})) == {
        ("impressions_factor", "warning")
    }
    large = {"impressions": 200_000, "rows": 200_000, "responses": 10_000}
    assert set(breaches(large)) == {
        ("impressions_factor", "warning"),
        ("impressions_factor", "error"),
    }


def test_a_breach_names_day_numbers_and_the_key_to_change():
    sentence = breaches({"responses": 250})["response_rate_factor", "warning"]
    assert sentence == (
        "day 2024-01-20: its response rate is 0.25 (250 of 1,000), that of the recent days 0.05 "
        "(validate.response_rate_factor.warning is 2)"
    )
    sentence = breaches({}, nulls=400)["null_share_rise", "warning"]
    assert sentence.startswith("day 2024-01-20, column price: 40.0% of the rows have no value")


def test_a_rate_is_judged_beyond_chance():
    """Of 20 impressions at 5 %, no response and three of them are chance; of 2,000 they are not."""
    for responses in (0, 3):
        few = {"impressions": 20, "rows": 20, "responses": responses}
        assert ("response_rate_factor", "warning") not in breaches(few)
    assert ("response_rate_factor", "warning") in breaches({"impressions": 2000, "responses": 0})


@pytest.mark.parametrize(
    ("last", "rule"),
    [
        ({"impressions": 0, "rows": 0, "responses": 0}, "day_holds_rows"),
        ({"impressions": np.nan}, "finite"),
        ({"impressions": np.inf}, "finite"),
        ({"responses": np.nan}, "finite"),
        ({"field_nulls": 1000}, "day_has_field"),
        ({"field_nulls": np.nan}, "finite"),
        ({"new_rows": 1000}, "new_value_share"),
        ({"new_rows": np.nan}, "new_value_share"),
    ],
)
def test_no_day_passes_on_nothing(last, rule):
    """empty, all null, not finite."""
    assert (rule, "error") in breaches(last)


def test_not_finite_is_a_breach_of_every_comparison():
    odd = breaches(dict.fromkeys(USUAL, np.nan), nulls=np.nan)
    assert {rule for rule, severity in odd if severity == "error"} == {*LIMITS, "finite"}


def test_no_day_at_all_and_one_day_alone_are_errors():
    """a check with nothing to look at has not passed."""
    assert breaches({}, days=DAYS[:1])
    assert all(severity == "error" for _, severity in breaches({}, days=DAYS[:1]))


def test_a_limit_of_null_asks_nothing():
    open_limits = {name: {"warning": None, "error": None} for name in LIMITS}
    odd = {"impressions": 10**6, "responses": 900_000, "new_rows": 1000}
    assert breaches(odd, nulls=1000, limits=open_limits) == {}


def test_a_day_is_compared_with_the_recent_days_alone():
    facts = {day: dict(USUAL) for day in DAYS}
    for day in DAYS[:5]:
        facts[day]["impressions"] = 10**6
    frame = day_frame(facts, 3).set_index("day")
    assert np.isnan(frame.loc[DAYS[0], "recent_impressions"])
    assert frame.loc[DAYS[1], "recent_impressions"] == 10**6
    assert frame.loc[DAYS[8], "recent_impressions"] == 1000
    assert frame.loc[DAYS[8], "recent_rate"] == 0.05
