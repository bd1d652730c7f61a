"""How a flow ends: with a state that has a name and a sentence."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from prefect.client.schemas.objects import State
from prefect.states import Failed

from pipeline.errors import AdaCalibError

P = ParamSpec("P")


def failing_in_one_sentence(body: Callable[P, State]) -> Callable[P, State]:
    """A flow's body of which a refusal becomes the state `Failed` with its sentence.

    Prefect would show the traceback of an exception instead. Other exceptions stay what they are:
    they are mistakes in the code, and there the traceback helps.
    """

    @wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> State:
        try:
            return body(*args, **kwargs)
        except AdaCalibError as error:
            return Failed(message=str(error))

    return run


def finish(name: str, state: State) -> None:
    """Print how a flow ended; where it did not complete, on stderr with exit code 1."""
    if not state.is_completed():
        sys.exit(f"{name}: {state.message}")
    print(f"{name}: {state.name}. {state.message}")
