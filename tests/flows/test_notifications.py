"""Notifications: every channel gets day, stage, reason and next step; none can fail the day."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prefect.blocks.system import Secret
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows import refresh, watch
from flows.notifications import NEXT_STEPS, News, notify
from flows.states import failing_in_one_sentence
from pipeline.core.errors import NOTIFY, masked
from pipeline.registry.tags import when
from pipeline.registry.tools.programs import git
from pipeline.registry.verdicts import Production
from tests.flows.conftest import save

LATE = News("late", "2013-09-30", "land", "2013-09-30 has not landed")


class Hook(BaseHTTPRequestHandler):
    """Keeps what is posted; a path with `broken` answers 500."""

    received: list[dict]

    def do_POST(self) -> None:
        """Take a message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append({"path": self.path, **json.loads(body)})
        self.send_response(500 if "broken" in self.path else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is written."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[dict]]]:
    """The address of a webhook without its scheme, and the messages it received."""
    Hook.received = []
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", Hook.received
        server.shutdown()


@pytest.fixture(autouse=True)
def no_events(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The events that would go to a Prefect server."""
    events: list[dict] = []
    monkeypatch.setattr("flows.notifications.emit_event", lambda **event: events.append(event))
    return events


def test_a_message_says_day_stage_reason_and_next_step(webhook, monkeypatch, no_events):
    host, received = webhook
    monkeypatch.setenv(NOTIFY, f"json://{host}/one json://{host}/two")
    notify(LATE)
    assert {message["path"] for message in received} == {"/one", "/two"}
    assert received[0]["title"] == "AdaCalib: late, day 2013-09-30"
    lines = received[0]["message"].splitlines()
    expected = ["day: 2013-09-30", "stage: land", "reason: 2013-09-30 has not landed"]
    assert lines[:3] == expected
    assert lines[3].startswith("next: production stays as it is; bring the day, then python -m ")
    assert [event["event"] for event in no_events] == ["adacalib.late"]
    assert no_events[0]["payload"]["stage"] == "land"


def test_channels_of_the_secret_block_are_heard_and_masked(webhook, monkeypatch):
    host, received = webhook
    channel = f"json://{host}/s3cr3t"
    monkeypatch.setattr(Secret, "load", lambda name: Secret(value=channel))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv(NOTIFY, "")  # as it was, afterwards
    monkeypatch.delenv(NOTIFY)
    notify(LATE)
    assert [message["path"] for message in received] == ["/s3cr3t"]
    assert "s3cr3t" not in masked(f"no answer of {channel}; s3cr3t")


def test_a_channel_that_fails_costs_a_warning_without_its_address(webhook, monkeypatch, caplog):
    host, received = webhook
    channels = f"json://{host}/broken-s3cr3t nonsense json://127.0.0.1:9/closed json://{host}/good"
    monkeypatch.setenv(NOTIFY, channels)
    monkeypatch.setattr(logging.getLogger("prefect"), "propagate", True)
    notify(LATE)
    assert "/good" in {message["path"] for message in received}
    warned = [record.getMessage() for record in caplog.records if NOTIFY in record.getMessage()]
    assert len(warned) == 3
    assert not [line for line in warned if "s3cr3t" in line or "127.0.0.1" in line]


def test_an_event_that_cannot_be_emitted_fails_nothing(monkeypatch):
    def refuse(**_):
        raise ConnectionError

    monkeypatch.setattr("flows.notifications.emit_event", refuse)
    monkeypatch.delenv(NOTIFY, raising=False)
    notify(LATE)


@pytest.mark.parametrize("what", NEXT_STEPS)
def test_every_kind_of_news_has_a_next_step(what):
    assert News(what, "2013-09-30", "gate", "it is so").facts["next"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("took https://bob:hunter2@git.example.org/x.git no", "took https://***@git.example.org/x"),
        ("the key is 0123456789abcdef", "the key is ***"),
        ("POST /services/T0KEN1/B0KEN2 failed", "POST /services/***/*** failed"),
        (
            "s3 gave https://b.example.org/x?X-Amz-Signature=abc&n=1",
            "s3 gave https://b.example.org/x?**",
        ),
        ("nothing to hide at https://git.example.org", "nothing to hide at https://git.example"),
    ],
)
def test_secrets_are_masked_wherever_they_stand(monkeypatch, text, shown):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "0123456789abcdef")
    monkeypatch.setenv(NOTIFY, "slack://T0KEN1/T0KEN1/B0KEN2")
    assert masked(text).startswith(shown)


def test_no_log_record_holds_a_secret(monkeypatch, caplog):
    monkeypatch.setenv("MY_TOKEN", "0123456789abcdef")
    logging.getLogger("anything").warning("given %s", "0123456789abcdef")
    assert [record.getMessage() for record in caplog.records] == ["given ***"]


@pytest.mark.parametrize(
    ("since", "name"),
    [(0, "InOrder"), ("2013-10-01 09:30 UTC", "Overdue"), (None, "Overdue"),
     ("2999-01-01 00:00 UTC", "Overdue")],
)  # fmt: skip
def test_people_are_notified_when_nothing_was_promoted_for_days(tmp_path, monkeypatch, since, name):
    """A promotion by a clock of the future is none of these days."""
    since = f"{when(time.time())} UTC" if since == 0 else since
    held = Production("v0.0.1", "a" * 40, since, "2013-09-30", "b" * 64) if since else None
    sent: list[News] = []
    monkeypatch.setattr("flows.watch.production", lambda folder: held)
    monkeypatch.setattr("flows.watch.notify", sent.append)
    state = watch.watch.fn(str(tmp_path), max_days=3)
    assert state.name == name
    assert [news.what for news in sent] == (["overdue"] if name == "Overdue" else [])
    assert state.is_completed() == (name == "InOrder")


def test_what_another_clone_promoted_is_known_before_anybody_is_notified(
    history, tmp_path, monkeypatch
):
    monkeypatch.setattr("flows.watch.notify", lambda news: pytest.fail(str(news)))
    verdict = {"last_day": "2013-09-30", "model_sha256": "a" * 64, "reasons": [], "checks": []}
    (history / "reports/gate.json").write_text(json.dumps(verdict))
    save(history)
    bare = str(tmp_path / "remote.git")
    git(tmp_path, "clone", "--quiet", "--bare", str(history), bare)
    git(history, "remote", "add", "origin", bare)
    for name in ("model@v0.0.1", "model#prod#1"):  # tagged by somebody else, at the remote
        robot = ("-c", "user.name=Robot", "-c", "user.email=robot@example.org")
        git(Path(bare), *robot, "tag", "--annotate", "--message", "x", name, "main")
    assert watch.watch.fn(str(history)).name == "InOrder"


@pytest.mark.parametrize(
    ("module", "address"),
    [("refresh", "https://bob:hunter2@h.org/{day}"), ("backfill", "s3://b/{day}?sig=hunter2")],
)
def test_an_address_with_a_secret_is_refused_before_prefect_hears_of_it(tmp_path, module, address):
    days = {
        "refresh": ["--day", "2013-09-30"],
        "backfill": ["--first", "2013-09-30", "--last", "2013-09-30"],
    }
    command = [sys.executable, "-m", f"flows.{module}", *days[module], "--source", address]
    own = os.environ | {"PREFECT_HOME": str(tmp_path / "prefect")}
    refused = subprocess.run(command, check=False, capture_output=True, text=True, env=own)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "holds a secret" in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr
    assert not (tmp_path / "prefect/prefect.db").exists()


@pytest.mark.parametrize(
    "query",
    [
        "?password=",
        "?n=1&Passwd=",
        "?AWSAccessKeyId=",
        "?X-Amz-Credential=",
        "#access_token=",
        "?pwd=",
    ],
)
def test_a_secret_has_many_names_in_an_address(query):
    assert masked(f"https://h.org/{{day}}.csv{query}hunter2&b=1").count("hunter2") == 0
    harmless = "https://h.org/key=1/{day}.csv?design=b&keyword=x&author=y"
    assert masked(harmless) == harmless


@pytest.mark.parametrize("store", ["abfs", "abfss", "wasb", "wasbs"])
def test_a_container_is_no_secret_and_a_password_beside_it_is(store):
    address = f"{store}://logs@account.dfs.core.windows.net/{{day}}.csv"
    assert masked(address) == address
    assert "hunter2" not in masked(address.replace("logs", "logs:hunter2"))
    assert "hunter2" not in masked(f"{address}?sig=hunter2")


@pytest.mark.parametrize("days", [-1.0, 0.0, float("nan")])
def test_days_that_no_promotion_can_be_young_enough_for_notify_nobody(monkeypatch, days):
    monkeypatch.setattr("flows.watch.notify", lambda news: pytest.fail(str(news)))
    assert watch.watch.fn(max_days=days).is_failed()


@pytest.mark.parametrize("hours", [-1.0, float("nan"), 1e9])
def test_a_day_is_waited_for_some_hours_or_refused(tmp_path, monkeypatch, hours):
    monkeypatch.setattr("flows.refresh.notify", lambda news: None)
    state = refresh.refresh.fn("2013-09-30", str(tmp_path), wait_hours=hours)
    assert (state.name, "wait_hours" in state.message) == ("Failed", True)


def test_a_deployed_run_with_such_an_address_fails_and_no_state_shows_a_secret():
    @failing_in_one_sentence
    def body(source: str) -> State:
        return Completed(message=f"took {source} and https://bob:hunter2@h.org")

    assert body("https://bob:hunter2@h.org").is_failed()
    assert "hunter2" not in body("https://bob:hunter2@h.org").message
    assert body("s3://b/x").message == "took s3://b/x and https://***@h.org"
