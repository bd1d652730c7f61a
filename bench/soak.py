"""python -m bench.soak [--days N] [--faults N] [--seed N] [--place DIR] [--json OUT]

Simulated days are refreshed by the deployed flow, with faults drawn by a seed: killed processes,
damaged files, remotes that fail, days that are late or cut short (bench/soak_faults.py). A day that
did not come through is asked for again, as its next slot would; whoever watches over processes is
played by `flows.local up`. Days roll and the base is retrained weekly. At the end the bytes in
production must be those that `dvc repro` makes of the same days in a project where nothing ever
went wrong, and nothing may be left: no process, no lock, no half-written file. Most stages are
small stand-ins, with --own-stages they are the project's; git, DVC, landing, split, locks,
registry, Prefect's server, its worker and the flows are real.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench.soak_faults import LATE, drawn, run_with
from bench.soak_project import MAPPING, day_of, deliver, make_project, undisturbed
from pipeline.core.files import file_sums
from pipeline.registry.tools.programs import git
from pipeline.registry.verdicts import production

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
SECONDS = 400.0  # that a run may take on a busy machine
PORT = 4297


@dataclass
class Soak:
    """A project, its server and worker, and what was seen of each day."""

    project: Path
    inbox: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def api(self) -> str:
        """Of the server."""
        return f"http://127.0.0.1:{PORT}/api"

    def environment(self) -> dict[str, str]:
        """Of everything that is started for the project."""
        own = {"PREFECT_HOME": str(self.project / ".prefect"), "SOAK_SECONDS": "1.5"}
        own["PREFECT_WORKER_QUERY_SECONDS"] = "1"  # it looks for runs; the soak waits for it
        return {**os.environ, **own}

    def local(self, action: str) -> None:
        """`python -m flows.local`, as a person or a supervisor would call it."""
        port = ["--port", str(PORT)] if action == "up" else []
        command = [sys.executable, "-m", "flows.local", action, *port]
        subprocess.run(
            command, cwd=self.project, env=self.environment(), check=True, capture_output=True
        )

    def process(self, name: str) -> psutil.Process:
        """The server or the worker."""
        state = json.loads((self.project / ".prefect/local.json").read_text())
        return psutil.Process(state["processes"][name]["id"])

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of the server; None as long as there is none."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"{self.api}/{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except OSError:
            return None

    def start(self, day: str, source: str) -> str:
        """Ask for the deployed refresh of a day, and give its run's id."""
        deployed = until(lambda: self.ask("deployments/name/refresh/refresh"))
        parameters = {"day": day, "source": source, "mapping": MAPPING}
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return until(lambda: self.ask(f"deployments/{deployed['id']}/create_flow_run", body))["id"]

    def end(self, run: str) -> tuple[str, str]:
        """Wait until a run has ended; the name of its state and its sentence.

        A run of which the server still believes that it is at work, though its process is gone, is
        not waited for longer than half a minute: its day is asked for again.
        """
        deadline, gone = time.monotonic() + SECONDS, 0.0
        while time.monotonic() < deadline:
            found = self.ask(f"flow_runs/{run}")
            if found and found["state_type"] in ENDED:
                return found["state_name"], found["state"]["message"] or ""
            if found and found["state_type"] == "RUNNING" and not self.at_work():
                gone = gone or time.monotonic()
                if time.monotonic() - gone > 30:
                    return "Lost", "its process is gone"
            time.sleep(0.5)
        return "Unended", f"nothing after {SECONDS:.0f} s"

    def at_work(self) -> list[psutil.Process]:
        """The processes that run a flow of this project, whether their worker lives or not."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[1:2] == ["-m"] and words[2].startswith(("prefect.engine", "prefect.runner")):
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("PREFECT_HOME") == str(self.project / ".prefect"):
                        found.append(process)
        return found

    def ended(self, run: str) -> bool:
        """Whether a run has ended, as far as the server knows, or was never heard of again."""
        found = self.ask(f"flow_runs/{run}")
        return bool(found and found["state_type"] in ENDED)

    def force(self, run: str, state: str) -> None:
        """Tell the server that a run has another state."""
        body = {"state": {"type": state, "message": "by hand"}, "force": True}
        self.ask(f"flow_runs/{run}/set_state", body)

    def alive(self) -> bool:
        """Whether server and worker are."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return all(self.process(name).is_running() for name in ("server", "worker"))
        return False

    def refresh(
        self, day: str, meanwhile: Callable[[str], None] | None = None, source: str = ""
    ) -> str:
        """One run of a day, and what happens to it meanwhile; the name of its state."""
        run = self.start(day, source or f"{self.inbox}/{{day}}.csv.gz")
        if meanwhile:
            meanwhile(run)
        time.sleep(2)
        if not self.alive():
            self.local("up")
        state, sentence = self.end(run)
        print(f"  {day}: {state}: {sentence.splitlines()[0] if sentence else ''}", file=sys.stderr)
        return state


def until(true: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What `true` says, once it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    raise TimeoutError("the soak waited in vain")


def run_day(soak: Soak, number: int, faults: list[str], seed: int) -> list[str]:
    """The states of a day's runs, until it was promoted or refused, or its deadline passed."""
    states = []
    for turn, fault in enumerate(faults):
        print(f" {day_of(number)}: {fault}", file=sys.stderr)
        chance = random.Random(f"{seed} {number} {turn}")
        states.append(run_with(fault, soak, number, chance))
    deliver(soak.inbox, day_of(number))  # after its deadline: the next day takes it along
    for _ in range(0 if LATE in faults else 4):
        if states[-1:] in (["Promoted"], ["Refused"]):
            break
        states.append(soak.refresh(day_of(number)))
    return states


def leftovers(soak: Soak) -> list[str]:
    """What a killed run left in the worktree or in the process table."""
    release = soak.project / ".release"
    found = [str(path.relative_to(release)) for path in release.glob("**/.*.tmp-*")]
    found += [
        str(path) for path in (soak.project / ".git").glob("**/*.lock") if path.stat().st_size
    ]
    ours = f"{soak.project.parent}/"
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if str(process.info["cwd"] or "").startswith(ours):
            found.append(" ".join(process.info["cmdline"] or []))
    stay = ("adacalib-release.lock", ".data.tmp-lock")  # empty files by which runs wait
    return [name for name in found if not name.endswith(stay)]


def seconds_of(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """How long a command takes."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def overhead(soak: Soak, day: str) -> dict[str, float]:
    """Seconds of a refresh and of `dvc repro` where everything is cached, the server running."""
    source = f"{soak.inbox}/{{day}}.csv.gz"
    command = [sys.executable, "-m", "flows.refresh", "--day", day, "--source", source]
    command += ["--mapping", MAPPING]
    refreshing = seconds_of(command, soak.project, soak.environment())
    dvc = [str(Path(sys.executable).parent / "dvc"), "repro"]
    return {
        "refresh": refreshing,
        "dvc repro": seconds_of(dvc, soak.project / ".release", soak.environment()),
    }


def soak_days(place: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run the soak in a folder, and say what came of it; days that are done are not run again."""
    soak, done = Soak(place / "project", place / "inbox"), place / "days.json"
    if done.exists():
        soak.rows = json.loads(done.read_text())
    else:
        make_project(soak.project, soak.inbox, given.own_stages)
    faults = drawn(given.days, given.faults, given.seed)
    try:
        soak.local("up")
        for number in range(len(soak.rows) + 1, given.days + 1):
            start, of_day = time.monotonic(), faults.get(number, [])
            states = run_day(soak, number, of_day, given.seed)
            row = {"day": day_of(number), "faults": of_day, "states": states}
            soak.rows.append(row | {"seconds": round(time.monotonic() - start, 1)})
            done.write_text(json.dumps(soak.rows))
        cached = overhead(soak, day_of(given.days))
    finally:
        soak.local("down")
    came = [day_of(number) for number in range(1, given.days + 1)]
    undisturbed(place / "undisturbed", place / "same", came, given.own_stages)
    return outcome(soak, place / "undisturbed") | {
        "overhead_seconds": cached["refresh"] - cached["dvc repro"],
        "cached_seconds": cached,
        "seconds": sum(row["seconds"] for row in soak.rows),
    }


def outcome(soak: Soak, calm: Path) -> dict[str, Any]:
    """What is in production and at the remotes, beside a project where nothing went wrong.

    In production is the newest day whose verdict allowed it.
    """
    current, model = production(soak.project), Path("artifacts/model")
    same = file_sums(soak.project / ".release" / model) == file_sums(calm / model)
    passed = [row["day"] for row in soak.rows if row["states"][-1:] == ["Promoted"]]
    log = git(soak.project, "log", "--format=%s", "--first-parent", "main..release").output.split()
    there = git(Path(f"{soak.project}-remote.git"), "rev-parse", "release").output
    return {
        "days": soak.rows,
        "production": asdict(current) if current else None,
        "same_bytes": bool(current and current.last_day == passed[-1] and same),
        "commits_a_day": len(log) == len(set(log)),
        "pushed": git(soak.project, "rev-parse", "release").output == there,
        "leftovers": leftovers(soak),
    }


def table(result: dict[str, Any]) -> str:
    """The result in words."""
    lines = ["| day | faults | s | states of its runs |", "|---|---|---|---|"]
    for row in result["days"]:
        cells = (row["day"], ", ".join(row["faults"]), f"{row['seconds']:.0f}")
        lines.append(f"| {' | '.join(cells)} | {' → '.join(row['states'])} |")
    cached = result["cached_seconds"]
    return "\n".join(
        [
            *lines,
            f"the bytes of an undisturbed run, the newest day that passed: {result['same_bytes']}",
            f"one commit a day: {result['commits_a_day']}; pushed: {result['pushed']}; "
            f"left behind: {result['leftovers'] or 'nothing'}",
            f"everything cached: refresh {cached['refresh']:.1f} s, dvc repro "
            f"{cached['dvc repro']:.1f} s; {result['seconds']:.0f} s in all",
        ]
    )


def main() -> None:
    """Run the soak; exit code 1 where it did not end as it should."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--days", type=int, default=15)
    parser.add_argument("--faults", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1, help="of the faults and their moments")
    parser.add_argument("--own-stages", action="store_true", help="no stand-ins")
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument("--place", type=Path, help="an empty folder; or one to go on where it was")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing of it stays in either case
    with TemporaryDirectory(prefix="adacalib-soak-") as place:
        result = soak_days(given.place or Path(place), given)
    print(table(result))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    sound = result["same_bytes"] and result["commits_a_day"] and result["pushed"]
    sys.exit(0 if sound and not result["leftovers"] else 1)


if __name__ == "__main__":
    main()
