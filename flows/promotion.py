"""Promotion: the model of the newest refreshed day becomes the production model.

python -m flows.promotion promote [--folder DIR]
"""

from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.notifications import News, notify
from flows.states import command_line, failing_in_one_sentence
from flows.worktree import refuse_declared_dead, release_worktree
from pipeline.registry.promote import promote as promote_model
from pipeline.registry.promote import rollback as roll_back_model
from pipeline.registry.verdicts import production

PATIENCE = 600.0  # seconds to wait for a run at work in the release worktree


@flow(name="promote", flow_run_name="promote", persist_result=False)
@failing_in_one_sentence
def promote(folder: str = ".") -> State:
    """Put the newest refreshed day of a checkout in production, if its verdict allows it.

    Args:
        folder: the checkout; the model is that of its release worktree.
    """
    with release_worktree(Path(folder), "promotion", PATIENCE) as release:
        refuse_declared_dead(release)
        before = production(release)
        sentence = promote_model(release)
        after = production(release)
    if after and after != before:
        notify(News("promoted", after.last_day, "promotion", sentence))
    return Completed(name="Promoted", message=sentence)


@flow(name="rollback", flow_run_name="rollback", persist_result=False)
@failing_in_one_sentence
def rollback(version: str | None = None, folder: str = ".") -> State:
    """Put an earlier version back in production.

    Args:
        version: a registered version; none: the one that was in production before this one.
        folder: the checkout.
    """
    with release_worktree(Path(folder), "rollback", PATIENCE) as release:
        refuse_declared_dead(release)
        sentence = roll_back_model(release, version)
        now = production(release)
    notify(News("rolled back", now.last_day if now else "-", "rollback", sentence))
    return Completed(name="RolledBack", message=sentence)


if __name__ == "__main__":
    command_line(promote, rollback)
