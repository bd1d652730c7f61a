"""Notifications: what happened to a day, as a Prefect event and to the channels they chose.

Channels stand in ADACALIB_NOTIFY, or in a Prefect secret block `adacalib-notify`, with white space
between them: Apprise addresses (webhook, e-mail, Slack and what is compatible with it). A channel
that fails costs a warning, no more.
"""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prefect.events import emit_event
from prefect.logging import get_logger

from pipeline.core.errors import NOTIFY, masked

BLOCK = "adacalib-notify"
NEXT_STEPS = {
    "failed": (
        "production is as it was; remove the cause, then python -m flows.refresh --day {day} "
        "or the next slot goes on"
    ),
    "refused": (
        "production stays as it is; adacalib results shows the verdict, and docs/operating.md "
        "what to do about it"
    ),
    "late": (
        "production stays as it is; bring the day, then python -m flows.refresh --day {day}; "
        "the next slot takes it along if it has come by then"
    ),
    "skipped": "nothing to do; python -m flows.backfill makes the reports of days left out",
    "alarm": (
        "look at that day's labels and rows; adacalib trend shows the days before, and "
        "adacalib rollback goes back to the version before, should that one be better"
    ),
    "promoted": "nothing to do; adacalib rollback goes back to the version before",
    "rolled back": "find out why it was necessary before the next slot promotes again",
    "overdue": "adacalib status says what the last refresh did, adacalib why what would run",
}


@dataclass(frozen=True)
class News:
    """What people are notified of a day.

    Attributes:
        what: a key of NEXT_STEPS.
        day: YYYY-MM-DD; "-" where it is about none.
        stage: where it happened: a stage, or a step of the flow such as `land`.
        reason: why, in a sentence or more.
    """

    what: str
    day: str
    stage: str
    reason: str

    @property
    def title(self) -> str:
        """One line for a subject."""
        return f"AdaCalib: {self.what}, day {self.day}"

    @property
    def facts(self) -> dict[str, str]:
        """Day, stage, reason and next step, secrets masked."""
        step = NEXT_STEPS[self.what].format(day=self.day)
        said = {"day": self.day, "stage": self.stage, "reason": self.reason, "next": step}
        return {name: masked(fact) for name, fact in said.items()}


def notify(news: News) -> None:
    """Emit `adacalib.<what>` as an event and send the news to every channel; never raises."""
    with suppress(Exception):
        emit_event(
            event=f"adacalib.{news.what.replace(' ', '-')}",
            resource={
                "prefect.resource.id": f"adacalib.day.{news.day}",
                "prefect.resource.name": news.title,
            },
            payload=news.facts,
        )
    if news.what == "skipped":  # an event for whoever looks, no message
        return
    for number, channel in enumerate(_channels(), 1):
        refusal = _refusal(channel, news)
        if refusal:  # a channel goes by its place in the list, as its address is a secret
            get_logger("adacalib").warning(f"channel {number} of {NOTIFY}: {refusal}")


def _channels() -> list[str]:
    """What the environment names, else what the secret block holds, from then on there, too: the
    variable is masked.
    """
    if NOTIFY not in os.environ and os.environ.get("PREFECT_API_URL"):
        from prefect.blocks.system import Secret

        with suppress(Exception):  # there is none, or the server does not answer
            secret: Any = Secret.load(BLOCK)
            os.environ[NOTIFY] = str(secret.get())
    return os.environ.get(NOTIFY, "").split()


def _refusal(channel: str, news: News) -> str | None:
    """Why a channel did not take the news; None where it did. Apprise waits seconds for each."""
    try:
        import apprise

        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it writes addresses
        receiver = apprise.Apprise()
        if not receiver.add(channel):
            return "it is no address that Apprise knows"
        body = "\n".join(f"{name}: {fact}" for name, fact in news.facts.items())
        if not receiver.notify(title=news.title, body=body):
            return "it was not delivered"
    except Exception as error:  # a channel may fail in any way; the day goes on
        return type(error).__name__
    return None
