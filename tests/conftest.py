"""Fast tests first; in CI a skip that is not expected is a failure."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is slow, not wrong.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Reasons (their beginnings) for which a test may be skipped in CI.
EXPECTED_SKIPS = ("mcgrad is not installed", "the AdWords scores are not there")

_unexpected: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests last, so that a mistake shows early."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note skips that CI does not expect."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(EXPECTED_SKIPS):
            _unexpected.append(f"{item.nodeid}: {reason}")
    return report


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
