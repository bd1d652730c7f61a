"""Which day a run is for, and which days it leaves out."""

from datetime import UTC, datetime

import pytest
from prefect.runtime import flow_run

from flows.arrival import (
    day_before,
    days_between,
    days_of,
    named,
    newer_slots,
    scheduled_day,
)
from flows.refresh import refresh
from pipeline.core.errors import AdaCalibError
from tests.flows.conftest import until


@pytest.mark.parametrize(
    ("instant", "time_zone", "day"),
    [
        (datetime(2013, 10, 1, 9, 30, tzinfo=UTC), "America/New_York", "2013-09-30"),
        (datetime(2013, 10, 1, 3, 59, tzinfo=UTC), "America/New_York", "2013-09-29"),
        (datetime(2013, 10, 1, 4, 0, tzinfo=UTC), "America/New_York", "2013-09-30"),
        (datetime(2013, 9, 30, 16, 0, tzinfo=UTC), "Asia/Shanghai", "2013-09-30"),
        (datetime(2013, 3, 10, 5, 0, tzinfo=UTC), "America/New_York", "2013-03-09"),
    ],
)
def test_the_day_of_a_scheduled_run_is_the_last_whole_one_in_the_logs_time_zone(
    instant, time_zone, day
):
    assert day_before(instant, time_zone) == day


def test_a_deployed_run_takes_its_day_from_its_scheduled_time(project, monkeypatch):
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "some-deployment")
    half_past_eleven = datetime(2013, 10, 1, 3, 30, tzinfo=UTC)  # the evening before, in New York
    monkeypatch.setitem(flow_run.FIELDS, "scheduled_start_time", lambda: half_past_eleven)
    assert scheduled_day(project) == "2013-09-29"


def test_without_a_day_and_a_schedule_nothing_is_guessed(project):
    with pytest.raises(AdaCalibError, match="no schedule implies one; say --day"):
        scheduled_day(project)


@pytest.mark.slow
def test_after_an_outage_only_the_newest_slot_runs_and_the_others_name_it(
    checkout, prefect_server, monkeypatch
):
    """The slots are those that a real schedule made; the clock alone is another."""
    watch = {"deployments": {"name": {"any_": ["watch"]}}}
    (deployed,) = prefect_server.ask("deployments/filter", **watch)
    runs: list[dict] = []
    until(lambda: runs.extend(prefect_server.ask("flow_runs/filter", **watch)) or len(runs) > 2)
    slots = sorted({datetime.fromisoformat(run["expected_start_time"]) for run in runs})
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", deployed["id"])
    monkeypatch.setattr("flows.arrival.DateTime", type("", (), {"now": lambda _: slots[2]}))
    monkeypatch.setitem(flow_run.FIELDS, "scheduled_start_time", lambda: slots[0])
    state = refresh(folder=str(checkout), return_state=True)
    first, second, third = (day_before(slot, "America/New_York") for slot in slots[:3])
    assert (state.type.value, state.name) == ("COMPLETED", "Skipped"), state.message
    due = f"{second}, {third} is due already"
    assert state.message == f"{first} was skipped: {due}; production moves forward"

    monkeypatch.setitem(flow_run.FIELDS, "scheduled_start_time", lambda: slots[2])
    assert newer_slots(checkout) == []


@pytest.mark.parametrize("day", ["2013-9-30", "20130930", "2013-02-30", "yesterday", ""])
def test_a_day_has_one_spelling(day):
    with pytest.raises(AdaCalibError, match="a day is spelled YYYY-MM-DD, got "):
        days_of(day, day)


def test_a_range_of_days_goes_over_the_ends_of_months_and_leap_years():
    assert days_of("2024-02-28", "2024-03-01") == ["2024-02-28", "2024-02-29", "2024-03-01"]
    with pytest.raises(AdaCalibError, match=r"2013-09-30\.\.2013-09-29 ends before it begins"):
        days_of("2013-09-30", "2013-09-29")


@pytest.mark.parametrize(
    ("newest", "day", "left_out"),
    [
        (None, "2013-09-30", []),
        ("2013-09-30", "2013-09-30", []),
        ("2013-09-29", "2013-09-30", []),
        ("2013-09-27", "2013-09-30", ["2013-09-28", "2013-09-29"]),
    ],
)
def test_the_days_of_an_outage_are_those_between_two_refreshed_ones(newest, day, left_out):
    assert days_between(newest, day) == left_out


def test_many_days_are_named_by_their_ends():
    assert named(["2013-09-28", "2013-09-29"]) == "2013-09-28, 2013-09-29"
    assert named(days_of("2013-01-01", "2013-03-01")) == "2013-01-01 to 2013-03-01 (60 days)"
