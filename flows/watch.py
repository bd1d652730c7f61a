"""The dead-man's check: nobody promotes, and nobody says so.

python -m flows.watch [--folder DIR] [--max-days N]
"""

from datetime import UTC, datetime
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.notifications import News, notify
from flows.states import command_line, failing_in_one_sentence
from pipeline.core.errors import AdaCalibError
from pipeline.registry.history import fetched, last_refresh
from pipeline.registry.verdicts import production

DAYS = 3.0


@flow(name="watch", flow_run_name="watch", persist_result=False)
@failing_in_one_sentence
def watch(folder: str = ".", max_days: float = DAYS) -> State:
    """Notify people where nothing was promoted for too long, whatever the reason.

    Args:
        folder: the checkout.
        max_days: days since the last promotion that are still in order.

    The final state is `InOrder`, or `Overdue`, a failed one.
    """
    if not max_days > 0:
        raise AdaCalibError(
            f"max_days is {max_days:g}, and a promotion is older; give days above 0"
        )
    unsure, current = fetched(Path(folder)), production(Path(folder))
    if current is None:
        age, sentence = float("inf"), "nothing was ever promoted"
    else:
        since = datetime.strptime(current.since, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
        age = (datetime.now(UTC) - since).total_seconds() / 86400
        sentence = f"{current.version} of {current.last_day} is in production since {current.since}"
    sentence = " ".join([*unsure, sentence])
    if abs(age) <= max_days:  # what a clock put into the future says nothing of today
        return Completed(name="InOrder", message=sentence)
    reason = f"{sentence}: no promotion in the last {max_days:g} days\n{last_refresh(Path(folder))}"
    notify(News("overdue", current.last_day if current else "-", "promotion", reason))
    return Failed(name="Overdue", message=reason)


if __name__ == "__main__":
    command_line(watch)
