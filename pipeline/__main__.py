"""python -m pipeline STAGE PATH…: run one stage on the paths that dvc.yaml declares for it."""

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from pipeline.core.errors import AdaCalibError, masked
from pipeline.core.files import MANIFEST
from pipeline.core.signals import interrupt_on_signals
from pipeline.params.params_file import STAGES, read_params, section
from pipeline.params.sections import Params


def run_stage(stage: str, paths: list[Path], params_path: Path = Path("params.yaml")) -> None:
    """Call `pipeline.stages.<stage>.run(*paths, params=…)`, with `log=…` and `split=…` where asked.

    Raises:
        AdaCalibError: the stage is unknown, its paths do not fit, the stage itself refused, or what
            it read is another by now, for which DVC would take the outputs.
    """
    if stage not in STAGES:
        raise AdaCalibError(f"no stage {stage!r}; the stages are {', '.join(STAGES)}")
    # the log, or what stands in its place; training holds the days it reads against its contract
    inputs = [] if stage == "train_base" else [*paths[:1], *(path / MANIFEST for path in paths[:1])]
    before = _written(inputs)
    params = read_params(params_path)  # first: what is wrong there is said before libraries load
    run = importlib.import_module(f"pipeline.stages.{stage}").run
    signature = inspect.signature(run)
    expected = [name for name, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    if len(paths) != len(expected):
        raise AdaCalibError(f"{stage} takes the paths {expected}, got {[str(p) for p in paths]}")
    shared = signature.parameters.keys() - {*expected, "params"}
    if os.environ.get("ADACALIB_DASK"):  # worker processes are in other folders
        paths = [path.absolute() for path in paths]
    given = _given(params, stage, shared)
    run(*paths, **given)
    after = _written(inputs)
    loaded = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    changed = [file for file, when in before.items() if after.get(file) != when]
    changed = [file for file in changed if file.suffix != ".py" or str(file) in loaded]
    changed += [params_path] if _given(read_params(params_path), stage, shared) != given else []
    if changed:
        raise AdaCalibError(f"{changed[0]} changed while this was at work; run dvc repro again")


def _given(params: Params, stage: str, shared: set[str]) -> dict[str, Any]:
    """The parameters of a stage, by the names under which it takes them."""
    return {"params": section(params, stage), **{name: getattr(params, name) for name in shared}}


def _written(inputs: list[Path]) -> dict[Path, tuple[int, int]]:
    """When inputs and the code were written, and their sizes."""
    files = [*inputs, *Path(__file__).parent.rglob("*.py")]
    stats = {file: file.stat() for file in files if file.is_file()}
    return {file: (stat.st_mtime_ns, stat.st_size) for file, stat in stats.items()}


def main() -> None:
    """Run the stage named on the command line; a refusal is one sentence and exit code 1."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m pipeline STAGE PATH…")
    # Threads that wait for one another give the core away: where others use it too, spinning made
    # training ten times slower. It changes no result, and has to be set before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    interrupt_on_signals()
    try:
        run_stage(sys.argv[1], [Path(argument) for argument in sys.argv[2:]])
    except AdaCalibError as error:
        sys.exit(f"{sys.argv[1]}: {masked(str(error))}")
    except KeyboardInterrupt:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            sys.exit(1)  # what started it says why
        sys.exit(f"{sys.argv[1]}: stopped, nothing is half-written; run it again")
    except OSError as error:  # a full disk, a place that may not be written
        sys.exit(f"{sys.argv[1]}: {error}; make room or give the right, and run it again")


if __name__ == "__main__":
    main()
