"""python -m bench.soak [--days N] [--seed N] [--place DIR] [--json OUT]: faults, the same bytes.

Fifteen simulated days are refreshed by the deployed flow, twelve of them with a fault injected. A
day that did not come through is asked for once more, as its next slot would; whoever watches over
processes is played by `flows.local up`. At the end the bytes in production must be those that
`dvc repro` makes of the same days in a project where nothing ever went wrong, and nothing may be
left: no process, no lock, no half-written file. The stages are small stand-ins; git, DVC, landing,
locks, registry, Prefect's server, its worker and the flows are real.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
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

from bench.soak_project import day_of, deliver, make_project, undisturbed
from pipeline.registry.promote import production
from pipeline.registry.tools.dvc import folder_md5
from pipeline.registry.tools.programs import git

FAULTS = {
    2: "kill -9 flow",
    3: "kill -9 worker",
    4: "kill -9 dvc",
    5: "kill -9 stage",
    6: "kill -9 server",
    7: "truncated day",
    8: "missing day",
    9: "late day",
    10: "full disk",
    11: "kill -9 flow and worker",
    12: "SIGTERM flow",
    13: "kill -9 flow, any time",
}
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
SECONDS = 400.0  # that a run may take on a busy machine
PORT = 4297


@dataclass
class Soak:
    """A project, its server and worker, and what was seen of each day."""

    project: Path
    inbox: Path
    mark: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def api(self) -> str:
        """Of the server."""
        return f"http://127.0.0.1:{PORT}/api"

    def environment(self) -> dict[str, str]:
        """Of everything that is started for the project."""
        own = {"PREFECT_HOME": str(self.project / ".prefect"), "SOAK_MARK": str(self.mark)}
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

    def start(self, day: str) -> str:
        """Ask for the deployed refresh of a day, and give its run's id."""
        deployed = until(lambda: self.ask("deployments/name/refresh/refresh"))
        parameters = {"day": day, "source": f"{self.inbox}/{{day}}.csv.gz"}
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


def until(true: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What `true` says, once it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    raise TimeoutError("the soak waited in vain")


def stage_at_work(soak: Soak) -> psutil.Process:
    """The stage that has written half of its output."""
    until(lambda: soak.mark.exists() and soak.mark.read_text())
    return psutil.Process(int(soak.mark.read_text()))


def kill(soak: Soak, fault: str, chance: random.Random) -> None:
    """Do to a run at work what a fault says."""
    how = signal.SIGTERM if fault.startswith("SIGTERM") else signal.SIGKILL
    if fault.endswith("any time"):
        until(soak.at_work)
        time.sleep(chance.uniform(0, 15))
        victims = soak.at_work()
    else:
        stage = stage_at_work(soak)
        above = stage.parents()
        dvc = next(p for p in above if any("/dvc" in word for word in p.cmdline()[:2]))
        flow = dvc.parent()
        named = {"flow": flow, "dvc": dvc, "stage": stage}
        named |= {name: soak.process(name) for name in ("worker", "server") if name in fault}
        victims = [process for name, process in named.items() if name in fault]
    for victim in victims:
        victim.send_signal(how)


def refresh(soak: Soak, day: str, fault: str = "", chance: random.Random | None = None) -> str:
    """One run of a day; with a fault, that happens in the middle of it."""
    soak.mark.unlink(missing_ok=True)
    run = soak.start(day)
    if chance:
        kill(soak, fault, chance)
    if "worker" in fault or "server" in fault:
        time.sleep(2)
        soak.local("up")
    state, sentence = soak.end(run)
    print(f"  {day}: {state}: {sentence.splitlines()[0] if sentence else ''}", file=sys.stderr)
    return state


def run_day(soak: Soak, number: int, chance: random.Random) -> list[str]:
    """The states of a day's runs, until it was promoted or its deadline passed."""
    day, fault = day_of(number), FAULTS.get(number, "")
    if "kill" in fault or "SIGTERM" in fault:
        deliver(soak.inbox, day)
        states = [refresh(soak, day, fault, chance)]
    elif fault == "truncated day":
        deliver(soak.inbox, day, whole=False)
        states = [refresh(soak, day)]
        deliver(soak.inbox, day)
    elif fault in ("missing day", "late day"):
        states = [refresh(soak, day)]
        if fault == "late day":
            deliver(soak.inbox, day)  # after its deadline: the next day takes it along
        return states
    elif fault == "full disk":
        deliver(soak.inbox, day)
        states = [on_a_full_disk(soak, day)]
    else:
        deliver(soak.inbox, day)
        states = []
    for _ in range(3):
        if states[-1:] == ["Promoted"]:
            break
        states.append(refresh(soak, day))
    return states


def on_a_full_disk(soak: Soak, day: str) -> str:
    """A run whose artifacts are on a disk of a few pages; only root may mount one."""
    artifacts = soak.project / ".release/artifacts"
    shutil.rmtree(artifacts, ignore_errors=True)
    artifacts.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(artifacts)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        print("  no right to mount a tmpfs: the full disk is left out", file=sys.stderr)
        return "Left out"
    try:
        return refresh(soak, day)
    finally:
        subprocess.run(["umount", "--lazy", str(artifacts)], check=True)


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
    return [name for name in found if not name.endswith("adacalib-release.lock")]


def seconds_of(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """How long a command takes."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def overhead(soak: Soak, day: str) -> dict[str, float]:
    """Seconds of a refresh and of `dvc repro` where everything is cached, the server running."""
    source = f"{soak.inbox}/{{day}}.csv.gz"
    command = [sys.executable, "-m", "flows.refresh", "--day", day, "--source", source]
    refreshing = seconds_of(command, soak.project, soak.environment())
    dvc = [str(Path(sys.executable).parent / "dvc"), "repro"]
    return {
        "refresh": refreshing,
        "dvc repro": seconds_of(dvc, soak.project / ".release", soak.environment()),
    }


def soak_days(place: Path, days: int, seed: int) -> dict[str, Any]:
    """Run the soak in a folder, and say what came of it; days that are done are not run again."""
    soak, done = Soak(place / "project", place / "inbox", place / "mark"), place / "days.json"
    if done.exists():
        soak.rows = json.loads(done.read_text())
    else:
        make_project(soak.project, soak.inbox)
    try:
        soak.local("up")
        for number in range(len(soak.rows) + 1, days + 1):
            start = time.monotonic()
            states = run_day(soak, number, random.Random(f"{seed} {number}"))
            seconds = round(time.monotonic() - start, 1)
            row = {"day": day_of(number), "fault": FAULTS.get(number, ""), "states": states}
            soak.rows.append(row | {"seconds": seconds})
            done.write_text(json.dumps(soak.rows))
        cached = overhead(soak, day_of(days))
    finally:
        soak.local("down")
    came = [day_of(n) for n in range(days + 1) if FAULTS.get(n) != "missing day"]
    undisturbed(place / "undisturbed", place / "same", came)
    current = production(soak.project)
    model = Path("artifacts/model")
    same = folder_md5(soak.project / ".release" / model) == folder_md5(
        place / "undisturbed" / model
    )
    log = git(soak.project, "log", "--format=%s", "--first-parent", "main..release").output.split()
    return {
        "days": soak.rows,
        "production": asdict(current) if current else None,
        "same_bytes": bool(current and current.last_day == day_of(days) and same),
        "commits_a_day": len(log) == len(set(log)),
        "pushed": git(soak.project, "rev-parse", "release").output
        == git(Path(f"{soak.project}-remote.git"), "rev-parse", "release").output,
        "leftovers": leftovers(soak),
        "overhead_seconds": cached["refresh"] - cached["dvc repro"],
        "cached_seconds": cached,
        "seconds": sum(row["seconds"] for row in soak.rows),
    }


def table(result: dict[str, Any]) -> str:
    """The result in words."""
    lines = [f"{'day':10}  {'fault':24} {'s':>6}  states of its runs"]
    for row in result["days"]:
        states = " → ".join(row["states"])
        lines.append(f"{row['day']:10}  {row['fault']:24} {row['seconds']:6.1f}  {states}")
    cached = result["cached_seconds"]
    return "\n".join(
        [
            *lines,
            f"production holds the bytes of an undisturbed run: {result['same_bytes']}",
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
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument("--place", type=Path, help="an empty folder; or one to go on where it was")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing of it stays in either case
    with TemporaryDirectory(prefix="adacalib-soak-") as place:
        result = soak_days(given.place or Path(place), given.days, given.seed)
    print(table(result))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    sound = result["same_bytes"] and result["commits_a_day"] and result["pushed"]
    sys.exit(0 if sound and not result["leftovers"] else 1)


if __name__ == "__main__":
    main()
