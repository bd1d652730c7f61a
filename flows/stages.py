"""A Prefect flow for every stage of dvc.yaml, made from the DAG that it declares.

    python -m flows.stages STAGE [--folder DIR]

DVC decides whether a stage runs; the flow says which it was and why, and shows the stage's lines
as they are written. A deterministic stage is not retried, and Prefect caches nothing.
"""

import argparse
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from prefect import Flow, flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed
from ruamel.yaml import YAML

from flows.causes import NOTHING, cause, locked
from flows.states import failing_in_one_sentence, run_and_tell
from pipeline.errors import AdaCalibError, ToolError
from pipeline.release.registry import reproduce, status


def _declared(stage: dict[str, Any], *kinds: str) -> Iterator[PurePosixPath]:
    """The paths under some keys of a stage; an entry with options is a mapping of one key."""
    for kind in kinds:
        for entry in stage.get(kind, []):
            yield PurePosixPath(entry if isinstance(entry, str) else next(iter(entry)))


def _overlap(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def stage_order(folder: Path) -> list[str]:
    """The stages that dvc.yaml declares, each after those whose outputs it depends on.

    Raises:
        AdaCalibError: the folder has no dvc.yaml, or its stages depend on one another in a circle.
    """
    try:
        text = (folder / "dvc.yaml").read_text()
    except FileNotFoundError:
        raise AdaCalibError(f"{folder} has no dvc.yaml; run in the project's folder") from None
    stages = YAML(typ="safe", pure=True).load(text)["stages"]
    makers = [
        (path, name)
        for name, stage in stages.items()
        for path in _declared(stage, "outs", "metrics", "plots")
    ]
    upstreams = {
        name: {
            maker
            for dep in _declared(stage, "deps")
            for path, maker in makers
            if _overlap(dep, path)
        }
        for name, stage in stages.items()
    }
    try:
        return list(TopologicalSorter(upstreams).static_order())
    except CycleError as error:
        raise AdaCalibError(f"dvc.yaml goes in a circle: {' → '.join(error.args[1])}") from None


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
        before = locked(Path(folder), stage)
        executed = reproduce(stage, Path(folder), get_run_logger().info)
        why = cause(before, locked(Path(folder), stage))
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


def run_stages(folder: Path) -> None:
    """Run the flow of every stage, one after another, until one fails.

    Raises:
        ToolError: a stage failed; the sentence is its own.
    """
    fresh = fresh_stages(folder)
    for stage, run in stage_flows(folder).items():
        # The heartbeat of the flow around them speaks for the stages; to end one takes a second.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            state = run(str(folder), stage in fresh, return_state=True)
        if not state.is_completed():
            raise ToolError(state.message or f"{stage} ended as {state.name}")


def main() -> None:
    """Run the flow of one stage; a failure is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m flows.stages", description=__doc__)
    parser.add_argument("stage")
    parser.add_argument("--folder", default=".", help="where dvc.yaml is")
    arguments = parser.parse_args()
    run = stage_flow(arguments.stage)
    run_and_tell(arguments.stage, lambda: run(arguments.folder, return_state=True))


if __name__ == "__main__":
    main()
