"""``manage.py qstatus`` as a person, a pipe and a program see it."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.monitoring.overview import census, counts, limits, long_transactions, throughput
from django_pgqueue.worker.upkeep import bloat
from tests.support.address import conninfo
from tests.support.fixtures.admin import WORKER, claim, fail, retry, roll_up, send, sign_in, sql
from tests.support.processes import ROOT
from tests.support.window import ALTERNATE, BACK, Window

if TYPE_CHECKING:
    from pathlib import Path

    from django_pgqueue.testing import Clock

HOUR_MS = 3_600_000
COLOUR = re.compile("\x1b\\[[0-9;]*3[0-9][0-9;]*m")


@pytest.fixture(autouse=True)
def slim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead rows that other tests have left behind are no subject here."""
    monkeypatch.setattr(bloat, "found", lambda _: iter(()))


def said(*arguments: str) -> list[str]:
    out = io.StringIO()
    call_command("qstatus", *arguments, stdout=out)
    return out.getvalue().splitlines()


def told(*arguments: str) -> dict[str, Any]:
    [line] = said("--json", *arguments)
    found: dict[str, Any] = json.loads(line)
    return found


def busy(noon: Clock) -> None:
    """A queue with a bit of everything, and others."""
    sign_in("gone")
    noon.advance(dt.timedelta(minutes=10))
    sign_in(slots=3, queues=["default"])
    sign_in("idle", asleep_ms=60_000, queues=["default"])
    sign_in("listener", tasks=False)
    send()
    fail(claim()[0])
    put_back = send()
    retry(claim()[0], delay_ms=HOUR_MS)
    send(after=functions.After((put_back,)))
    send(priority=3)
    claim()
    send()
    send(queue="mail")
    control.pause("reports", by="Ada")
    sql(
        "insert into pgqueue_schedule (name, next_at, task, interval_ms) values ('nightly', %s, 'shop.t', 1000)",
        int(noon.at.timestamp() * 1000) + HOUR_MS,
    )
    noon.advance(dt.timedelta(seconds=30))


def test_the_versions_that_run_are_named_the_latest_first(noon: Clock) -> None:
    for worker, version in (("a", "2024.9.1"), ("b", "2024.10.1"), ("c", "2024.9.1")):
        sign_in(worker, version=version)
    sign_in("d")
    assert said()[1] == "Workers: 0 busy, 4 idle, 0 of 16 slots in use; version 2024.10.1 (1), 2024.9.1 (2)"
    assert told()["workers"]["versions"] == {"2024.10.1": 1, "2024.9.1": 2}


def test_the_last_hour_and_day_are_shown_by_queue_and_task(noon: Clock) -> None:
    roll_up(noon.at - dt.timedelta(hours=5), succeeded=7, run_ms=2000)
    roll_up(noon.at - dt.timedelta(minutes=20), succeeded=90, failed=6, retried=4)
    send()
    found = "\n".join(said("--tasks"))
    assert "Wait p50 / p95, 1 h  Run p50 / p95, 1 h" in found
    last_hour, last_day = found.split("Tasks of the last hour")[1].split("Tasks of the last day")
    assert re.search(r"shop.tasks.send_receipt +default +100 +6 +4 +10 ms / 10 ms +\d+ ms / \d+ ms +10 s", last_hour)
    assert re.search(r"shop.tasks.send_receipt +default +107 +6 +4 ", last_day)
    told_of = told("--tasks")
    [queue] = told_of["queues"]
    assert queue["last_hour"]["ended"] == 100
    assert [one["ended"] for one in told_of["tasks_last_day"]] == [107]
    assert told_of["tasks_last_hour"][0]["run_p95_seconds"] == pytest.approx(0.1, rel=0.03)


def test_queues_are_shown_in_a_table(noon: Clock) -> None:
    busy(noon)
    assert said() == [
        "default at 2026-01-09 12:10:30 (UTC)",
        "Workers: 1 busy, 1 idle, 1 of 7 slots in use; 1 listening for raw messages",
        "! No worker serves the queue mail: 1 message is ready.",
        "! Worker gone has not renewed its row for 10 min: it died, or cannot reach the database.",
        "",
        "Queue    Ready  Oldest  Scheduled  Running  Failed 24 h  Ended/min  Waited",
        "default      1    30 s          1        1            1        0.2    0 ms",
        "  1 waits for other messages or events",
        "mail         1    30 s          0        0            0          -       -",
        "  no worker",
        "reports      0       -          0        0            0          -       -",
        "  paused 30 s ago by Ada",
        "",
        "Next schedules",
        "  nightly  2026-01-09 13:10:00 in 60 min",
    ]


def test_an_empty_queue_is_reported_as_empty(noon: Clock) -> None:
    assert said()[1:] == [
        "No worker runs: start manage.py qworker",
        "",
        "No message waits or runs, and none has ended in the last 4 hours.",
    ]


def test_programs_get_json_with_the_same_numbers(noon: Clock) -> None:
    busy(noon)
    found = told()
    queues = {queue.pop("name"): queue for queue in found.pop("queues")}
    assert [alert["kind"] for alert in found.pop("alerts")] == ["no-worker", "silent"]
    assert queues["default"] == {
        "ready": 1, "scheduled": 1, "wait_for_others": 1, "running": 1, "expired": 0, "failed_24_hours": 1,
        "estimated": [], "oldest_ready_seconds": 30.0, "ended_a_minute": 0.2, "waited_seconds": 0.0, "paused": None,
        "last_hour": None, "growth_a_minute": 0.1,
        "no_worker": False,
    }  # fmt: skip
    assert queues["mail"]["no_worker"] is True
    assert queues["reports"]["paused"] == {"since": "2026-01-09T12:10:00+00:00", "by": "Ada"}
    assert found == {
        "database": "default",
        "at": "2026-01-09T12:10:30+00:00",
        "more_queues": False,
        "estimated": False,
        "workers": {
            "busy": 1, "idle": 1, "slots": 7, "used_slots": 1, "listeners": 1, "versions": {},
            "silent": [{"id": "gone", "hostname": "web1", "pid": 42, "silent_seconds": 630.0}],
        },
        "schedules": [{"name": "nightly", "task": "shop.t", "next_at": "2026-01-09T13:10:00+00:00"}],
        "pinned": [],
        "bloated": [],
        "unknown": [],
        "suspended": {"queues": {}, "is_at_least": False},
        "more_unknown": {"tasks": 0, "is_at_least": False},
    }  # fmt: skip


def test_of_messages_that_no_worker_knows_the_newest_are_named(noon: Clock) -> None:
    for task in (*(f"shop.tasks.a{n}" for n in range(12)), "shop.tasks.typo"):
        send(task=task, queue="mail")
        functions.message_park(connection, [(held, "shop.tasks has it not.") for held in claim("mail")], worker=WORKER)
        noon.advance(dt.timedelta(hours=1))
    named = [line for line in said() if line.startswith("! ") and "that knows" in line]
    assert named[0] == (
        "! 1 of shop.tasks.typo in the queue mail waits for a worker that knows the task, the first for 1 h: "
        "shop.tasks has it not."
    )
    assert named[-1] == "! 3 more tasks wait for a worker that knows them."
    found = told()
    unknown = found["unknown"][0]
    assert (unknown["task"], unknown["queue"], unknown["messages"]) == ("shop.tasks.typo", "mail", 1)
    assert found["more_unknown"] == {"tasks": 3, "is_at_least": False}
    assert found["queues"][0]["wait_for_others"] == 0


def test_estimates_are_marked(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 0)
    monkeypatch.setattr(counts, "MAX_PROBED", 3)
    monkeypatch.setattr(throughput, "SAMPLE", 2)
    for _ in range(5):
        send(task=None)
        send()
        fail(claim()[0])
    lines = said()
    assert re.fullmatch(r"default +~4 .* 5 +~\d[.\d]* +0 ms", lines[4])
    assert lines[-1] == "~ means: estimated."
    found = told()
    assert found["queues"][0]["estimated"] == ["ready"]
    assert found["estimated"] is True


def test_only_the_given_queues_are_shown(noon: Clock) -> None:
    busy(noon)
    assert [queue["name"] for queue in told("--queue", "mail,reports", "--queue", "none")["queues"]] == [
        "mail", "none", "reports",
    ]  # fmt: skip


def test_a_queue_is_shown_as_paused_however_many_others_are(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "QUEUES", 1)
    for name in ("a", "b"):
        control.pause(name, by="Ada")
    [queue] = told("--queue", "b")["queues"]
    assert queue["paused"]["by"] == "Ada"


def test_a_narrow_terminal_leaves_columns_out(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(noon)
    monkeypatch.setenv("COLUMNS", "40")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    call_command("qstatus", "--once", stdout=out, no_color=True)
    assert out.getvalue().splitlines()[5] == "Queue    Ready  Oldest  Running"


def test_names_cannot_steer_a_terminal(noon: Clock) -> None:
    send(queue="mail\x1b[2J\u202e", task=None)
    assert any(line.startswith("mail\\x1b[2J\\u202e  ") for line in said())


@pytest.mark.django_db(transaction=True)  # within a transaction PostgreSQL shows the sessions as they were before
def test_a_transaction_that_keeps_old_rows_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_transactions, "OLD", dt.timedelta(seconds=-1))
    with psycopg.connect(conninfo(), application_name="a long report") as other:
        other.execute("begin isolation level repeatable read")
        [[pid]] = other.execute("select pg_backend_pid() from pg_class limit 1").fetchall()
        assert any(f"session {pid} (a long report, user " in line for line in said() if line.startswith("! "))
        assert [one["application"] for one in told()["pinned"]] == ["a long report"]


@pytest.mark.django_db(transaction=True)
def test_a_query_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "50ms")
    with psycopg.connect(conninfo()) as other:
        other.execute("lock table pgqueue_message in access exclusive mode")
        with pytest.raises(CommandError, match="The query took longer than 5 seconds and was cancelled"):
            said()


def test_missing_tables_are_an_error_with_the_next_step(db: None) -> None:
    sql("alter table pgqueue_queue rename to elsewhere")
    with pytest.raises(CommandError, match=r"Run manage\.py migrate"):
        said()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--database", "nowhere"], "names no queue in the database 'nowhere'"),
        (["--interval", "0"], "--interval 0 is not a number of seconds from 0.1 to 86,400"),
        (["--interval", "nan"], "--interval nan is not"),
        (["--interval", "inf"], "--interval inf is not a number of seconds from 0.1 to 86,400"),
        (["--queue", ""], "--queue '' names no queue"),
        (["--queue", " ,"], "--queue ' ,' names no queue"),
    ],
)
def test_invalid_arguments_are_refused(db: None, arguments: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        said(*arguments)


def test_a_terminal_shows_a_table_that_is_redrawn(environment: dict[str, str]) -> None:
    sign_in("worker")
    send(queue="first")
    control.pause("first")
    window = Window("qstatus", "--interval", "0.1", environment=environment)
    window.shows("first")
    assert ALTERNATE in window.seen
    assert COLOUR.search(window.seen), "what is paused is coloured"
    send(queue="second")
    window.shows("second")
    assert window.ends(signal.SIGINT) == 0
    left = window.seen.rpartition(BACK)[2]
    assert "second" in left, "what was seen last stays to be read"
    assert "Ctrl-C" not in left
    assert "Traceback" not in window.seen


@pytest.mark.slow
def test_a_small_terminal_without_colours_is_redrawn_until_it_is_stopped(environment: dict[str, str]) -> None:
    for number in range(30):
        send(queue=f"queue-{number:02}", task=None)
    control.pause("queue-00")
    window = Window("qstatus", environment={**environment, "NO_COLOR": "1"}, columns=30, lines=10)
    window.shows("do not fit")
    assert "queue-29" not in window.seen
    assert "Failed 24 h" not in window.seen
    assert window.ends(signal.SIGTERM) == 0
    assert BACK in window.seen, "the terminal is as it was"
    assert not COLOUR.search(window.seen)


def test_a_terminal_without_rich_gets_plain_text(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('no rich here')")
    window = Window("qstatus", environment={**environment, "PYTHONPATH": str(tmp_path)})
    assert window.ends() == 0
    assert "pip install 'django-tasks-pgqueue[cli]'" in window.seen
    assert "No worker runs" in window.seen
    assert "\x1b[?1049h" not in window.seen


def test_a_pipe_gets_a_snapshot_each_interval_until_its_reader_ends(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.support.site.manage", "qstatus", "--json", "--interval", "0.1"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        looks = [json.loads(process.stdout.readline())["at"] for _ in range(2)]
        assert looks[0] < looks[1]
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0
