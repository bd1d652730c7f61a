"""A Prefect flow for every stage of dvc.yaml, made from the DAG that it declares.

    python -m flows.stages STAGE [--folder DIR]

DVC decides whether a stage runs; the flow says which it was and why, and shows the stage's lines
as they are written. A deterministic stage is not retried, and Prefect caches nothing.
"""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import typer
from prefect import Flow, flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed

from flows.states import failing_in_one_sentence, run_and_print
from pipeline.params.dag import stage_order
from pipeline.registry.staleness import NOTHING, cause, inputs_of
from pipeline.registry.tools.dvc import reproduce, status


def stage_flow(stage: str) -> Flow[[str, bool], State]:
    """The flow of one stage: `dvc repro STAGE` in a folder, so that its upstreams are fresh too.

    Its final state is `Ran` with the dependency that had changed, or `Cached`. Whoever just learnt
    from DVC that the stage and all before it are fresh says so, and DVC is not asked again.
    """

    @flow(name=stage, flow_run_name=stage, persist_result=False)
    @failing_in_one_sentence
    def run(folder: str = ".", known_fresh: bool = False) -> State:
        if known_fresh:
            return outcome(stage, [], NOTHING)
        before = inputs_of(Path(folder), stage)
        executed = reproduce(stage, Path(folder), get_run_logger().info)
        why = cause(before, inputs_of(Path(folder), stage))
        return outcome(stage, executed, why)

    return run


def outcome(stage: str, executed: list[str], why: str) -> State:
    """`Ran` or `Cached`, with the reason.

    Args:
        stage: the stage that was asked for.
        executed: the stages that DVC ran for it, upstreams first.
        why: what differs between the stage's inputs now and those of its last run.
    """
    upstream = [name for name in executed if name != stage]
    after = f" (after {', '.join(upstream)})" if upstream else ""
    ran = stage in executed
    if ran and why == NOTHING:
        why = "its outputs were missing or changed"
    elif not ran and why != NOTHING:
        why = f"{why}; its outputs for this were in the cache"
    return Completed(name="Ran" if ran else "Cached", message=f"{why}{after}")


def stage_flows(folder: Path) -> dict[str, Flow[[str, bool], State]]:
    """The flow of every stage of a folder's dvc.yaml by its name, upstreams first."""
    return {stage: stage_flow(stage) for stage in stage_order(folder)}


def fresh_stages(folder: Path) -> set[str]:
    """The stages before the first stale one: DVC would run none of them.

    Raises:
        ToolError: dvc failed.
    """
    stale, order = status(None, folder), stage_order(folder)
    if stale.keys() - set(order):  # the log itself is not as data.dvc has it
        return set()
    return set(takewhile(lambda stage: stage not in stale, order))


def run_stages(folder: Path) -> Iterator[tuple[str, State]]:
    """Run the flow of every stage, one after another, up to one that fails; each with its state.

    Raises:
        ToolError: dvc failed.
    """
    fresh = fresh_stages(folder)
    for stage, run in stage_flows(folder).items():
        # The heartbeat of the flow around them speaks for the stages; to end one takes a second.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            state = run(str(folder), stage in fresh, return_state=True)
        yield stage, state
        if not state.is_completed():
            return


def main(stage: str, folder: str = ".") -> None:
    """Run the flow of one stage; a failure is one sentence on stderr and exit code 1."""
    run_and_print(stage, lambda: stage_flow(stage)(folder, return_state=True))


if __name__ == "__main__":
    typer.run(main)
