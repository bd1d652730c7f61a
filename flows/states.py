"""How a flow begins on the command line, and ends: with a state that has a name and a sentence."""

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec

import typer
from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.states import Failed

from flows.local import some_server
from pipeline.core.errors import AdaCalibError, masked, refuse_secrets
from pipeline.core.signals import interrupt_on_signals

P = ParamSpec("P")


def failing_in_one_sentence(body: Callable[P, State]) -> Callable[P, State]:
    """A flow's body of which a refusal becomes the state `Failed` with its sentence.

    Prefect would show the traceback of an exception instead. Other exceptions stay what they are:
    they are mistakes in the code, and there the traceback helps; one that quotes a secret is
    replaced. Secrets are masked in the sentence.
    """

    @wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> State:
        try:
            refuse_secrets([*args, *kwargs.values()])
            state = body(*args, **kwargs)
            state.message = masked(state.message or "")
            return state
        except (AdaCalibError, OSError) as error:
            return failed(error)
        except Exception as error:
            if masked(str(error)) != str(error):
                raise RuntimeError(f"{type(error).__name__}: {masked(str(error))}") from None
            raise

    return run


def failed(error: Exception) -> State:
    """The state of a run that was refused, or met a full disk or a place that it may not write."""
    step = "; make room or give the right, run again" if isinstance(error, OSError) else ""
    return Failed(message=masked(f"{error}{step}"))


def command_line(*flows: Flow[..., State]) -> None:
    """Run the flow that the command line names, if there are several; its parameters are options.

    How it ended is printed; where it did not complete, on stderr with exit code 1.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    for flow in flows:
        app.command(flow.name)(_command(flow))
    app()


def _command(flow: Flow[..., State]) -> Callable[..., None]:
    @wraps(flow.fn)
    def run(**given: Any) -> None:
        run_and_print(flow.name, lambda: flow(**given, return_state=True), given.values())

    return run


def run_and_print(name: str, start: Callable[[], State], given: Iterable[Any] = ()) -> None:
    """Run a flow and print how it ended; where it did not complete, on stderr with exit code 1.

    Args:
        name: what the sentence begins with.
        start: runs the flow and returns its final state.
        given: its parameters, in which no secret may be.
    """
    interrupt_on_signals()
    try:
        refuse_secrets(given)
        with some_server():
            state = start()
    except KeyboardInterrupt:
        print(f"{name}: stopped; the next run begins where this one was", file=sys.stderr)
        sys.exit(130)
    except (AdaCalibError, OSError) as error:
        sys.exit(f"{name}: {failed(error).message}")
    except RuntimeError as error:  # Prefect's own: a flow's mistakes are in its state
        sys.exit(
            f"{name}: {masked(str(error))}; start that server (python -m flows.local up), or, to "
            "run without one, python -m flows.local down and unset PREFECT_API_URL"
        )
    if not state.is_completed():
        named = "" if state.name in ("Failed", "Crashed") else f"{state.name}. "
        sys.exit(f"{name}: {named}{state.message}")
    print(f"{name}: {state.name}. {state.message}")
