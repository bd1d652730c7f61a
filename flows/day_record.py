"""What becomes of a day, kept while a flow works on it: for the journal, and for people."""

from dataclasses import dataclass, field
from pathlib import Path

from prefect.client.schemas.objects import State

from flows.notifications import News, tell
from flows.secrets import masked
from pipeline.registry.run_log import note

# What people are told of a state that ends a day; of the others they are told nothing.
NEWS = {"Refused": "refused", "Late": "late", "Skipped": "skipped", "Failed": "failed"}


@dataclass
class Record:
    """A day that is at work.

    Attributes:
        checkout: the checkout whose journal is written.
        day: YYYY-MM-DD; "-" as long as it is not known.
        at: the stage or step at work.
        stages: for each stage that is done, what it says of itself.
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
        note(self.checkout, flow="refresh", day=day)

    def end(self, state: State) -> State:
        """Note how the day ended, tell people where they want to know, and give the state back."""
        name, sentence = state.name or "", masked(state.message or "")
        if self.day != "-":
            entry = {"state": name, "sentence": sentence, "stages": self.stages}
            note(self.checkout, flow="refresh", day=self.day, **entry)
        what = "promoted" if self.promoted else NEWS.get(name)
        if what:
            tell(News(what, self.day, self.at, sentence))
        return state
