from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django.contrib.admin.models import LogEntry

from django_pgqueue import control
from django_pgqueue.models import Worker
from django_pgqueue.monitoring.overview import held
from tests.support.fixtures.admin import WORKER, WORKERS, claim, complete, send, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor


def test_the_list_shows_what_each_worker_does(root: Visitor, clock: Clock) -> None:
    sign_in("old")
    clock.advance(dt.timedelta(minutes=5))
    sign_in(WORKER, ["mail", "slow"], slots=8, version="2024.10.1")
    sign_in("idle", None, ("slow", "<b>"), asleep_ms=1_000)
    for _ in range(3):
        send()
    claim(limit=3)
    rows = {row["id"]: row for row in root.open(WORKERS).rows}
    assert {name: row["state"] for name, row in rows.items()} == {
        "old": "not seen for 5 min",
        WORKER: "busy 3 of 8 slots",
        "idle": "idle",
    }
    assert rows[WORKER] | {"state": ""} == {
        "": "",
        "id": WORKER,
        "hostname": "web1",
        "pid": "42",
        "slots": "8",
        "version": "2024.10.1",
        "queues": "mail, slow",
        "state": "",
        "problem": "-",
        "seen at": clock.at.strftime("%Y-%m-%d %H:%M:%S"),
        "started at": rows[WORKER]["started at"],
    }
    assert [rows[name]["queues"] for name in ("old", "idle")] == ["all", "all but slow, <b>"]


def test_workers_follow_orders_of_those_who_may_change_them(
    root: Visitor, visitor: Callable[..., Visitor], clock: Clock
) -> None:
    sign_in("gone")
    clock.advance(dt.timedelta(minutes=5))
    sign_in(slots=3)
    assert "Workers follow within seconds." in root.act(WORKERS, "pause", [WORKER]).root.text
    assert root.open(WORKERS).column("state") == ["paused by root", "not seen for 5 min"]
    root.act(WORKERS, "more_slots", [WORKER])
    root.act(WORKERS, "more_slots", [WORKER])
    root.act(WORKERS, "fewer_slots", [WORKER])
    row = Worker.objects.get(pk=WORKER)
    assert (row.ordered, row.ordered_slots, row.ordered_by) == ("pause", 4, "root")
    root.act(WORKERS, "resume", [WORKER])
    assert root.open(WORKERS).column("state")[0] == "idle"
    assert "so nothing was ordered: gone." in root.act(WORKERS, "stop", ["gone"]).root.text
    root.act(WORKERS, "stop", [WORKER])
    assert root.open(WORKERS).column("state")[0] == "stopping by root"
    assert [entry.get_change_message() for entry in LogEntry.objects.filter(object_id=WORKER).order_by("id")] == [
        "Paused.", "One slot more.", "One slot more.", "One slot fewer.", "Resumed.", "Asked to stop.",
    ]  # fmt: skip
    assert "pause" not in visitor("view_worker").open(WORKERS).actions
    assert "pause" in visitor("view_worker", "change_worker").open(WORKERS).actions


def test_a_paused_worker_serves_no_queue(root: Visitor, clock: Clock) -> None:
    sign_in()
    send()
    control.order_worker(WORKER, "pause", by="Ada")
    text = root.open("/admin/django_pgqueue/overview/").root.text
    assert "No worker serves the queue default: 1 message is ready." in text
    assert f"{WORKER} paused" in text


def test_a_listener_for_raw_messages_is_distinguished_from_workers(root: Visitor) -> None:
    sign_in("worker", ["mail"])
    sign_in("listener", ["mail"])
    sql("update pgqueue_worker set tasks = false where id = 'listener'")
    rows = {row["id"]: row["queues"] for row in root.open(WORKERS).rows}
    assert rows == {"worker": "mail", "listener": "mail (raw messages)"}


def test_a_worker_is_busy_if_it_runs_something_whether_or_not_it_can_be_woken(root: Visitor, clock: Clock) -> None:
    sign_in(asleep_ms=60_000, slots=2)
    assert root.open(WORKERS).column("state") == ["idle"]
    for _ in range(3):
        send()
    running = claim(limit=3)
    assert root.open(WORKERS).column("state") == ["busy 2 of 2 slots"], "the third waits for a slot"
    for message in running:
        complete(message)
    sign_in(slots=2)
    assert root.open(WORKERS).column("state") == ["idle"], "it polls, and runs nothing"


def test_a_worker_whose_locks_were_not_counted_is_idle_only_if_it_sleeps(
    root: Visitor, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST", 1)
    sign_in("polls")
    sign_in("sleeps", asleep_ms=60_000)
    send()
    claim()
    assert {row["id"]: row["state"] for row in root.open(WORKERS).rows} == {
        "polls": "busy 0+ of 4 slots", "sleeps": "idle",
    }  # fmt: skip


def test_a_problem_of_a_worker_is_shown_on_its_page_and_in_the_list(root: Visitor, clock: Clock) -> None:
    sign_in("web1")
    sql("update pgqueue_worker set problem = %s", f"schedules: <b>no rights</b> {'x' * 200} the end")
    page = root.open(WORKERS)
    [said] = page.column("problem")
    assert said.startswith("schedules: <b>no rights</b>")
    assert "the end" not in said
    [row] = page.cells
    assert root.open(row["id"].one("a").attributes["href"]).fields["problem"].text.endswith("the end")


def test_workers_written_by_hand_break_nothing(root: Visitor, clock: Clock) -> None:
    sql(
        "insert into pgqueue_worker "
        "(id, pid, slots, hostname, queues, exclude_queues, seen_at, started_at, asleep_until) values "
        "(' ', -1, 2147483647, '<script>', array[null, ''], array[null]::text[], '9999-12-30Z', '0001-01-02Z', %s), "
        "('x', 0, 0, '', '{}', '{}', '0001-01-02Z', '9999-12-30Z', %s)",
        2**63 - 1,
        -(2**63),
    )
    page = root.open(WORKERS)
    assert page.column("hostname") == ["<script>", "-"]
    assert page.column("queues") == ["None, but None", "none"]
