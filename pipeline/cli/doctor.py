"""What the next scheduled refresh needs, looked at beforehand: each ok, or a step to take."""

import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import read_json
from pipeline.core.typed_yaml import read_keys
from pipeline.data.ingest.mapping import read_mapping
from pipeline.data.ingest.sources import FORMATS, names_of, of_day
from pipeline.params.params_file import read_params
from pipeline.registry import commits
from pipeline.registry.pull import home_of
from pipeline.registry.tools.programs import git, hold, reach_this_machine, run_lock
from pipeline.registry.tools.stores import stores

HERE = Path()
POOL = "adacalib"


def diagnoses() -> Iterator[tuple[str, bool, str]]:
    """Of each thing a refresh needs: its name, whether it is all right, and how, or what to do."""
    for check in CHECKS:
        name = check.__name__.strip("_").replace("_", " ")
        try:
            yield name, True, check()
        except (AdaCalibError, OSError) as error:
            yield name, False, " ".join(str(error).split())
        except Exception as error:  # of another shape than it has to be
            reason = f"prefect.yaml or PREFECT_API_URL is malformed ({error}); correct it"
            yield name, False, f"{reason}, or git restore prefect.yaml"


def _python_and_parameters() -> str:
    return f"{sys.prefix}, log {read_params().log.format}"


def _git_identity() -> str:
    return commits.identity(HERE)["AUTHOR"][0]


def _branch_and_remote() -> str:
    commits.check_repository(HERE)
    commits.refuse_modified_code(HERE)
    if git(HERE, "diff", "--quiet", "HEAD", "--", "params.yaml", check=False).code:
        raise ToolError("params.yaml differs from the last commit, which is what a refresh runs; "
                        "git commit params.yaml, or git restore it")  # fmt: skip
    remote = commits.authority(HERE)
    asked = git(HERE, "ls-remote", "--heads", remote, check=False)
    if asked.code:
        raise ToolError(f"git remote {remote!r} does not answer: {asked.errors}; mend its address")
    return "no git remote: production is this clone's own" if remote == "." else f"remote {remote}"


def _dvc_cache_and_remote() -> str:
    home_of(HERE)
    with stores(HERE) as found:
        for store in found:
            store.probe()
        return " and ".join(store.name for store in found) + " can be written and read"


def _source_and_mapping() -> str:
    arrives, log_format = _deployed().get("parameters") or {}, read_params().log.format
    pattern, mapping = arrives.get("source"), arrives.get("mapping")
    if mapping or pattern:
        read_mapping(mapping or log_format)
    if not pattern and log_format not in FORMATS:
        raise ToolError(f"prefect.yaml: {log_format} comes in files; give the refresh source and "
                        "mapping under its parameters, then make down and make up")  # fmt: skip
    if pattern and not names_of(of_day(pattern, None)):
        raise ToolError(f"prefect.yaml: no file is at source {pattern!r}; correct the pattern")
    return f"files at {pattern}" if pattern else "the log is fetched, no files are waited for"


def _schedule() -> str:
    zone = read_params().log.time_zone
    for schedule in _deployed().get("schedules") or []:
        if schedule.get("timezone") not in (zone, "{{ $ADACALIB_TIME_ZONE }}"):
            raise ToolError(
                f"prefect.yaml schedules in {schedule.get('timezone')}, the log's days are those "
                f"of {zone} (log.time_zone): make them equal, then make down and make up"
            )
    return f"in the log's time zone, {zone}"


def _deployed() -> dict[str, Any]:
    """What prefect.yaml says of the refresh."""
    declared = read_keys(Path("prefect.yaml"), ToolError).get("deployments") or []
    found = next((d for d in declared if d.get("name") == "refresh"), None)
    if found is None:
        raise ToolError("prefect.yaml has no deployment refresh; git restore prefect.yaml")
    return found


def _disk() -> str:
    held = sum(f.stat().st_size for d in ("data", "artifacts") for f in Path(d).rglob("*"))
    free = shutil.disk_usage(HERE).free
    if free < 2 * held:
        raise ToolError(f"{free:,} bytes are free, twice the {held:,} of data and artifacts are "
                        "needed; make room, adacalib clean says what nobody needs")  # fmt: skip
    return f"{free / 1e9:.1f} GB free"


def _prefect() -> str:
    note = Path(os.environ.get("PREFECT_HOME") or ".prefect") / "local.json"
    api = os.environ.get("PREFECT_API_URL")
    api = api or (f"{read_json(note)['url']}/api" if note.exists() else None)
    if api is None:
        raise ToolError(f"no server is up ({note} is not there); make up starts one and a worker")
    reach_this_machine()
    head = {"Content-Type": "application/json"}
    query = urllib.request.Request(f"{api}/work_pools/{POOL}/workers/filter", b"{}", head)
    try:
        with urllib.request.urlopen(query, timeout=10) as answer:
            online = [w for w in json.load(answer) if w.get("status") == "ONLINE"]
    except OSError as error:
        raise ToolError(f"{api} does not answer ({error}); make down, then make up") from None
    if not online:
        raise ToolError(f"{api} has no worker for the pool {POOL}; make down, then make up")
    return f"server {api}, {len(online)} worker"


def _locks() -> str:
    with hold(run_lock(HERE, "release"), "adacalib doctor", ".release"):
        return "nothing is at work in .release"


CHECKS: tuple[Callable[[], str], ...] = (
    _python_and_parameters, _git_identity, _branch_and_remote, _dvc_cache_and_remote,
    _source_and_mapping, _schedule, _disk, _prefect, _locks,
)  # fmt: skip
