"""A Prefect flow for every stage of dvc.yaml, made from the DAG that it declares.

    python -m flows.stages STAGE [--folder DIR]

DVC decides whether a stage runs; the flow says which it was and why, and shows the stage's lines
as they are written. A deterministic stage is not retried, and Prefect caches nothing.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import typer
from prefect import Flow, flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed

from flows.states import failing_in_one_sentence, run_and_print
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.registry.staleness import NOTHING, cause, inputs_of
from pipeline.registry.tools.dvc import RUNNING, SAID_AGAIN, reproduction

# Where dvc begins to speak of a stage; one that lacks a dependency it names in the error alone.
STAGE = re.compile(r"^(?:Running stage|Stage|ERROR: failed to reproduce) '([^']+)'")


def stage_flow(stage: str, lines: Iterable[str], before: Mapping[str, str]) -> Flow[[str], State]:
    """The flow of one stage in a run of `dvc repro` that is under way.

    Its final state is `Ran` with the dependency that had changed, or `Cached`.

    Args:
        stage: its name.
        lines: what is written of it.
        before: what its last run before that was made of.
    """

    @flow(name=stage, flow_run_name=stage, persist_result=False)
    @failing_in_one_sentence
    def run(folder: str) -> State:
        ran = fresh = False
        for line in lines:
            if not SAID_AGAIN.search(line):
                get_run_logger().info(line)
            ran = ran or bool(RUNNING.match(line))
            fresh = fresh or line == f"Stage '{stage}' didn't change, skipping"
        return outcome(ran, cause(before, before if fresh else _made_of(Path(folder), stage)))

    return run


def _made_of(folder: Path, stage: str) -> Mapping[str, str]:
    """What a stage's last run was made of, while dvc may write of another: it does so in place."""
    try:
        return inputs_of(folder).get(stage, {})
    except (AdaCalibError, KeyError, TypeError, AttributeError):  # half of a file
        time.sleep(1.0)
        return inputs_of(folder).get(stage, {})


def outcome(ran: bool, why: str) -> State:
    """`Ran` or `Cached`, with the reason.

    Args:
        ran: whether DVC ran the stage.
        why: what differs between the stage's inputs now and those of its last run.
    """
    if ran and why == NOTHING:
        why = "its outputs were missing or changed"
    elif not ran and why != NOTHING:
        why = f"{why}; its outputs for this were in the cache"
    return Completed(name="Ran" if ran else "Cached", message=why)


def run_stages(folder: Path, last: str | None = None) -> Iterator[tuple[str, State]]:
    """Make every stage fresh by one `dvc repro`, in a flow for each, which comes with its state.

    DVC goes on to the next stage meanwhile.

    Args:
        folder: the project's.
        last: the stage that is wanted, after those that it depends on; None: all are.

    Raises:
        ToolError: a stage failed, which was the last to come; or dvc did before the first one.
    """
    at, before = "", inputs_of(folder)

    def stage_of(line: str) -> str:
        nonlocal at
        found = STAGE.match(line)
        at = found[1] if found else at
        return at

    # The heartbeat of the flow around them speaks for the stages; to end one takes a second.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        for stage, lines in groupby(reproduction(last, folder), stage_of):
            if not stage:
                continue
            follow = stage_flow(stage, lines, before.get(stage, {}))
            state = follow(str(folder), return_state=True)
            yield stage, state
            if not state.is_completed():
                raise ToolError(state.message or f"{stage} ended as {state.name}")


def main(stage: str, folder: str = ".") -> None:
    """Run the flows of one stage and of those before it; a failure is one sentence and code 1."""
    run_and_print(stage, lambda: [state for _, state in run_stages(Path(folder), stage)][-1])


if __name__ == "__main__":
    typer.run(main)
