"""Promotion: the model of the newest refreshed day becomes the production model.

python -m flows.promotion promote [--folder DIR]
"""

import argparse
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.notifications import News, tell
from flows.states import failing_in_one_sentence, run_and_tell
from flows.worktree import release_worktree
from pipeline.registry.promotion import production
from pipeline.registry.promotion import promote as promote_model
from pipeline.registry.rollback import rollback as roll_back_model

PATIENCE = 600.0  # seconds to wait for a run at work in the release worktree


def put_in_production(release: Path) -> State:
    """Promote what is committed in the release worktree; `Promoted`, with the registry's sentence.

    Raises:
        ReleaseError: the verdict, the model and the commit do not belong together, or the verdict
            is no; production is as it was.
    """
    return Completed(name="Promoted", message=promote_model(release))


@flow(name="promote", flow_run_name="promote", persist_result=False)
@failing_in_one_sentence
def promote(folder: str = ".") -> State:
    """Put the newest refreshed day of a checkout in production, if its verdict allows it.

    Args:
        folder: the checkout; the model is that of its release worktree.
    """
    with release_worktree(Path(folder), "promotion", PATIENCE) as release:
        before = production(release)
        state = put_in_production(release)
        after = production(release)
    if after and after != before:
        tell(News("promoted", after.last_day, "promotion", state.message or ""))
    return state


@flow(name="rollback", flow_run_name="rollback", persist_result=False)
@failing_in_one_sentence
def rollback(version: str | None = None, folder: str = ".") -> State:
    """Put an earlier version back in production.

    Args:
        version: a registered version; none: the one that was in production before this one.
        folder: the checkout.
    """
    with release_worktree(Path(folder), "rollback", PATIENCE) as release:
        said = roll_back_model(release, version)
        now = production(release)
    tell(News("rolled back", now.last_day if now else "-", "rollback", said))
    return Completed(name="RolledBack", message=said)


def main() -> None:
    """Run the command line; a refusal is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m flows.promotion", description=__doc__)
    parser.add_argument("action", choices=["promote", "rollback"])
    parser.add_argument("--version", help="rollback: a registered version")
    parser.add_argument("--folder", default=".", help="the checkout")
    arguments = parser.parse_args()
    version, folder = arguments.version, arguments.folder
    if arguments.action == "promote":
        run_and_tell("promote", lambda: promote(folder, return_state=True))
    else:
        run_and_tell("rollback", lambda: rollback(version, folder, return_state=True))


if __name__ == "__main__":
    main()
