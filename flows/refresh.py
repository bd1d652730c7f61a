"""The scheduled day: land → reproduce stage by stage → read the verdict → promote or report.

    python -m flows.refresh --day YYYY-MM-DD [--folder DIR] [--no-promote]

It works in the release worktree of a checkout and runs with or without a Prefect server. The
logical day is a parameter; a deployed run without one takes the day before its scheduled time.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import deployment
from prefect.runtime import flow_run as running
from prefect.states import Completed, Failed

from flows import worktree
from flows.arrival import (
    NotLandedError,
    bring,
    days_between,
    named,
    newer_slots,
    scheduled_day,
)
from flows.evidence import build_data_docs, show, show_trend
from flows.notifications import News, notify
from flows.stages import run_stages
from flows.states import command_line, failed, failing_in_one_sentence
from pipeline.core.errors import AdaCalibError, ToolError, masked
from pipeline.core.files import read_json
from pipeline.core.typed_yaml import read_keys
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import read_params, set_values
from pipeline.registry.history import write_run
from pipeline.registry.promote import on_hold, promote
from pipeline.registry.pull import fetch_champion, pin_champion
from pipeline.registry.verdicts import Production, production, way_around
from pipeline.report.trend import add_day

PATIENCE = 6 * 3600.0  # seconds to wait for another run at work in the worktree
LOOK_AGAIN = 60.0  # seconds between two looks for a day that has not landed
# What people are notified of where a state ends a day; of the other states of nothing.
NEWS = {"Refused": "refused", "Late": "late", "Skipped": "skipped", "Failed": "failed"}


@dataclass
class DayRun:
    """A day that is at work, for the run log and for notifications.

    Attributes:
        checkout: the checkout whose run log is written.
        day: YYYY-MM-DD; "-" as long as it is not known.
        at: the stage or step at work.
        stages: for each stage that is done, its state.
        promoted: whether production is another since this run.
    """

    checkout: Path
    day: str = "-"
    at: str = "start"
    stages: dict[str, str] = field(default_factory=dict)
    promoted: bool = False

    def begin(self, day: str) -> None:
        """The day is known now."""
        self.day = day
        write_run(self.checkout, day=day)

    def end(self, state: State) -> State:
        """Log how the day ended, notify people where they want to know, and give the state back."""
        name, sentence = state.name or "", masked(state.message or "")
        if self.day != "-":
            entry = {"state": name, "sentence": sentence, "stages": [*self.stages.items()]}
            write_run(self.checkout, day=self.day, **entry)
        what = "promoted" if self.promoted else NEWS.get(name)
        if what:
            notify(News(what, self.day, self.at, sentence))
        return state


def notify_of_crash(flow: Any, flow_run: Any, state: State) -> None:
    """Notify people of a run that was killed; Prefect's runner calls this, the run cannot."""
    day = (flow_run.parameters or {}).get("day") or "-"
    notify(News("failed", day, flow_run.name, state.message or "the run was killed"))


def _named_by_a_person(day: str | None) -> str:
    """The day of a run that somebody starts; only the schedule implies one."""
    if day is None:
        raise typer.BadParameter("no schedule implies one here; say --day YYYY-MM-DD")
    return day


@flow(
    name="refresh",
    flow_run_name=lambda: f"refresh {running.parameters['day'] or 'of the day before'}",
    persist_result=False,
    on_crashed=[notify_of_crash],
)
@failing_in_one_sentence
def refresh(
    day: Annotated[str | None, typer.Option(callback=_named_by_a_person)] = None,
    folder: str = ".",
    promotion: Annotated[bool, typer.Option("--promote/--no-promote")] = True,
    source: str | None = None,
    *,
    mapping: str | None = None,
    wait_hours: float = 0.0,
    retrain: Annotated[bool, typer.Option("--retrain")] = False,
) -> State:
    """Land a day, reproduce every stage, and promote the model or report why not.

    Args:
        day: the logical day, YYYY-MM-DD; none: the day before the run's scheduled time.
        folder: the checkout; the work is done in its release worktree.
        promotion: put the model in production if the verdict allows it.
        source: the files in which a day arrives, `{day}` in the place of the day; none: the log is
            one that is fetched.
        mapping: how those files are read; none: by the mapping that `log.format` names.
        wait_hours: how long after the scheduled time (the start, where there is none) a day that
            has not landed is waited for: its deadline.
        retrain: train the base model on the newest days, whatever the grid of days says.

    The final state is `Promoted`, `Passed` (promotion is off), `Refused` (also
    after a rollback, until a person has promoted), `Skipped` (a newer day is
    due or was refreshed), `Late` (the day has not landed by its deadline) or `Failed`.
    """
    run = DayRun(Path(folder))
    try:
        if not 0 <= wait_hours <= 168:
            raise AdaCalibError(f"wait_hours is {wait_hours:g}; give hours from 0 to 168, a week")
        run.begin(day_name(day_number(day or scheduled_day(Path(folder)))))
        newer = newer_slots(Path(folder)) if day is None else []
        if newer:
            return run.end(_skipped(run.day, f"{named(newer)} is due already"))
        begin = running.scheduled_start_time if deployment.id else datetime.now(UTC)
        deadline = begin + timedelta(hours=wait_hours)
        while True:
            state = _attempt(run, promotion, source, mapping, retrain)
            if state.name != "Late" or datetime.now(UTC) >= deadline:
                return run.end(state)
            get_run_logger().info(f"{state.message}; waiting for it until {deadline:%H:%M} UTC")
            time.sleep(LOOK_AGAIN)
    except (AdaCalibError, OSError) as error:
        return run.end(failed(error))
    except (KeyboardInterrupt, TerminationSignal):
        run.end(Failed(name="Stopped", message="the next run begins where this one was"))
        raise
    except Exception as error:
        run.end(Failed(message=f"a mistake in the code: {type(error).__name__}: {error}"))
        raise


def _skipped(day: str, why: str) -> State:
    return Completed(name="Skipped", message=f"{day} was skipped: {why}; production moves forward")


def _attempt(
    run: DayRun, promotion: bool, source: str | None, mapping: str | None, retrain: bool
) -> State:
    """One try of a day in the release worktree, from landing to promotion."""
    day, log = run.day, get_run_logger().info
    purpose = f"refresh of {day}"
    with worktree.release_worktree(run.checkout, purpose, PATIENCE, log) as release:
        run.at = "git"
        _catch_up(release)
        newest = worktree.newest_day(release)
        newer = _newer(day, newest, production(release) if promotion else None)
        if newer:
            return _skipped(day, newer)
        # the training day between two of the grid that an earlier run was asked for
        split = read_keys(release / "params.yaml", ToolError).get("split") or {}
        until = split.get("training_until")
        worktree.take_code(run.checkout, release)
        run.at = "land"
        try:
            changes = bring(day, release, run.checkout, source, mapping)
        except NotLandedError as error:
            return Failed(name="Late", message=str(error))
        left_out = days_between(newest, day)
        if left_out:
            get_run_logger().warning(f"skipped: {named(left_out)}")
        _set_day(release, day, until, retrain)
        # a day that runs again keeps its champion, so nothing of it is stale
        log(fetch_champion(release) if newest == day else pin_champion(release))
        _run_stages(run, release)
        run.at = "git"
        alarms = add_day(release, day)
        worktree.commit_day(release, day)
        show(day, release)
        if alarms:
            notify(News("alarm", day, "evaluate", "; ".join(alarms)))
        _share(release, day)
        state = _judge(run, release, promotion)
        show_trend(release)
    more = [f"skipped since {newest}: {named(left_out)}"] if left_out else []
    state.message = "\n".join([state.message or "", *changes, *more])
    return state


def _set_day(release: Path, day: str, until: str | None, retrain: bool) -> None:
    """Make a day the last one that is used; where asked, of a base model that is as new as can be.

    Raises:
        AdaCalibError: too few days have landed.
    """
    path = release / "params.yaml"
    kept = max(until or "", read_params(path).split.training_until or "") or None
    set_values(path, {"split.last_day": day, "split.training_until": kept})
    if retrain:
        from pipeline.stages.split import newest_training_day

        params = read_params(path)
        newest = newest_training_day(
            release / "data/manifest.json", params=params.split, log=params.log
        )
        set_values(path, {"split.training_until": newest})


def _newer(day: str, newest: str | None, current: Production | None) -> str | None:
    """What is newer than a day, so that its model could not be promoted; None: nothing is."""
    if newest and day < newest:
        return f"the release branch is at {newest}"
    if current and day < current.last_day:
        return f"{current.version} in production was made from days up to {current.last_day}"
    return None


def _catch_up(release: Path) -> None:
    """Take the days of other clones and finish what an earlier run could not push.

    A remote that does not answer is no reason to lose the day: it is asked again at the end.
    """
    try:
        worktree.fetch_days(release)
        if worktree.unshared(release):
            worktree.share.with_options(retries=0)(str(release), return_state=True)
    except ToolError as error:
        get_run_logger().warning(str(error))


def _run_stages(run: DayRun, release: Path) -> None:
    for stage, state in run_stages(release):
        run.at = stage
        run.stages[stage] = f"{state.name}: {state.message}"
        if (stage, state.name) == ("check_tables", "Ran"):
            build_data_docs(release)


def _share(release: Path, day: str) -> None:
    """Push the day.

    Raises:
        ToolError: a remote refused, or this run counts no more; the commit stays, and the next run
            pushes it.
    """
    worktree.refuse_declared_dead(release)
    shared = worktree.share(str(release), return_state=True)
    if not shared.is_completed():
        raise ToolError(
            f"{day} is committed here but not pushed: {shared.message}; the next run pushes it, or "
            "asks which days count where those of another clone came first"
        )


def _judge(run: DayRun, release: Path, promotion: bool) -> State:
    """What the verdict says becomes of the day."""
    gate = read_json(release / "reports/gate.json")
    run.at = "gate"
    out = f"{run.day} stays out of production; commands that are named are for {release.name}"
    if not gate["passed"]:
        return Completed(
            name="Refused", message="\n- ".join([out + way_around(gate), *gate["reasons"]])
        )
    if not promotion:
        return Completed(name="Passed", message=f"{run.day}: the verdict allows promotion")
    run.at = "promotion"
    held = on_hold(release)
    if held:
        return Completed(name="Refused", message=f"{out}\n- {held}")
    worktree.refuse_declared_dead(release)
    before = production(release)
    state: State = Completed(name="Promoted", message=promote(release))
    run.promoted = before != production(release)
    return state


if __name__ == "__main__":
    command_line(refresh)
