"""Deployed runs that were killed with their worker or server give their turn back.

    python -m flows.orphaned_runs

Nobody else would say that they have ended, and a turn is kept for minutes after a run was last
heard of. `flows.local up` calls this before it starts a worker.
"""

from collections.abc import Iterator
from contextlib import suppress

import psutil
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import State, StateType
from prefect.states import Crashed

from flows.settings import POOL

AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def end_lost_runs() -> None:
    """Let runs of the pool that are at work, but of which no process is left, end as crashed."""
    at_work = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=AT_WORK)))
    pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL]))
    alive = set(_runs_with_a_process())
    killed: State = Crashed(message="nothing of it is left: it was killed")
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=at_work, work_pool_filter=pool):
            if str(run.id) not in alive:
                client.set_flow_run_state(run.id, killed)


def _runs_with_a_process() -> Iterator[str]:
    """The ids of the flow runs that Prefect's runner has started and that have not ended."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or it is another user's
            words = process.cmdline()
            if words[1:2] == ["-m"] and words[2].startswith("prefect."):
                yield process.environ().get("PREFECT__FLOW_RUN_ID", "")


if __name__ == "__main__":
    end_lost_runs()
