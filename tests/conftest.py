"""The longest tests first; in CI a skip that is not expected is a failure."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# What is imported stays: to look for garbage in it takes a fifth of the time that tests are
# collected in, and some of each test.
gc.disable()

# Two processes on two cores: a thread that waits must sleep, not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A runner in the background is deaf to interrupts and lost terminals; what is started here is not.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is slow, not wrong. Each run draws other examples; bench.fuzz draws them for hours.
settings.register_profile("any machine", deadline=None, max_examples=40)
settings.load_profile("any machine")

# Reasons (their beginnings) for which a test may be skipped in CI.
EXPECTED_SKIPS = (
    "mcgrad is not installed",
    "the AdWords scores are not there",
    "root may not mount here",
)

_unexpected: list[str] = []


# Files that share a costly fixture: a Prefect server, a project with versions in production.
TOGETHER = ("tests/flows/", "tests/registry/test_pro", "tests/registry/test_pull.py",
            "tests/registry/test_clean.py", "tests/registry/test_kills.py")  # fmt: skip
# Those that start processes in which the stages' libraries are loaded already.
READY = ("tests/engine/test_cluster.py", "tests/engine/test_reused_stages.py",
         "tests/test_stopped_stages.py")  # fmt: skip
# Those that begin first, as no process shall wait for them at the end.
LONGEST = ("tests/flows/", *READY, "tests/registry/", "tests/stages/test_torchrun.py",
           "tests/test_walk.py", "tests/serving/test_workers.py", "tests/test_ten_days.py",
           "tests/test_damaged_artifacts.py")  # fmt: skip


class ByFile(LoadFileScheduling):
    """A file's tests stay in one process, with its fixtures; so do those of files together."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", maxsplit=1)[0]
        place = "/".join(path.split("/")[:2])
        if path in READY:
            return "ready"
        return place if path.startswith(TOGETHER) else path


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ByFile:
    """Share the files out among processes."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first, and of a file what is fast."""
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """From here on garbage is collected, of what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _turn(item: pytest.Item) -> tuple[int, bool]:
    starts = [n for n, start in enumerate(LONGEST) if item.nodeid.startswith(start)]
    return starts[0] if starts else len(LONGEST), item.get_closest_marker("slow") is not None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note skips that CI does not expect, whichever process met them."""
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(EXPECTED_SKIPS):
            _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the CI session whose skips hide something."""
    if _unexpected and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter) -> None:
    """Name the unexpected skips."""
    for line in _unexpected:
        terminalreporter.write_line(f"skip not expected in CI: {line}", red=True)


@pytest.fixture
def project() -> Path:
    """The folder of the checkout."""
    return Path(__file__).parent.parent
