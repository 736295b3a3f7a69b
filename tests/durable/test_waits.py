"""Sleeps, events and time-outs."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import sys
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_pgqueue.durable import emit
from django_pgqueue.exceptions import EventConflict, InvalidContent, InvalidMessage, PgQueueError
from django_pgqueue.models import Attempt, Message, Step
from django_pgqueue.testing import clock, drain
from tests.durable import tasks

pytestmark = pytest.mark.django_db
NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def test_a_task_sleeps_without_a_lock_and_goes_on_when_its_time_has_come() -> None:
    with clock(NOON) as now:
        result = tasks.sleepy.enqueue()
        drain()
        [message] = Message.objects.all()
        assert (message.worker, message.unlock_at, message.suspended_attempt) == (None, None, 1)
        now.advance(tasks.HOUR / 2)
        assert drain() == []
        now.advance(tasks.HOUR / 2)
        drain()
        result.refresh()
    assert result.return_value == "AFTER"
    assert tasks.calls == ["before", "after"]
    assert set(Attempt.objects.values_list("status", flat=True)) == {"suspended", "succeeded"}


def test_run_now_does_not_shorten_a_sleep() -> None:
    with clock(NOON) as now:
        tasks.sleepy.enqueue()
        drain()
        Message.objects.update(dequeue_at=now.at, in_line=True)
        drain(limit=1)
        assert Message.objects.get().dequeue_at == now.at + tasks.HOUR
        assert Step.objects.filter(status="waiting").count() == 1


@pytest.mark.parametrize("names", [("event", "sleep"), ("sleep", "event")])
def test_a_wait_that_is_of_another_kind_after_a_deploy_begins_anew(names: tuple[str, str]) -> None:
    waits: dict[str, Any] = {
        "event": lambda context: context.wait_for_event("paid", None if names[0] == "event" else tasks.HOUR * 3),
        "sleep": lambda context: context.sleep("paid", tasks.HOUR),
    }
    with clock(NOON) as now:
        tasks.CODE["code"] = waits[names[0]]
        tasks.run_code.enqueue("code")
        drain()
        tasks.CODE["code"] = waits[names[1]]
        now.advance(tasks.HOUR * 2)
        Message.objects.update(dequeue_at=now.at, in_line=True)
        drain()
        hours = {"event": 3, "sleep": 1}[names[1]]
        assert Message.objects.get().dequeue_at == now.at + tasks.HOUR * hours
        now.advance(tasks.HOUR * hours)
        drain()
    assert Attempt.objects.get(final=True).status == "succeeded"


def test_drain_runs_through_sleeps_and_time_outs_with_the_clock() -> None:
    with clock(NOON) as now:
        begun = now.at
        sleepy, late = tasks.sleepy.enqueue(), tasks.waiting.enqueue("paid:7", hours=5)
        drain(clock=now)
        assert now.at == begun + 5 * tasks.HOUR
    for result, expected in ((sleepy, "AFTER"), (late, "TOO LATE")):
        result.refresh()
        assert result.return_value == expected


def test_the_clock_moves_for_the_queues_that_are_drained_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with clock(NOON) as now:
        tasks.sleepy.using(queue_name="other").enqueue()
        drain()
        assert drain(["default"], clock=now) == []
        assert now.at == NOON
        tasks.CODE["code"] = lambda context: [context.sleep(f"nap-{n}", tasks.HOUR) for n in itertools.count()]
        result = tasks.run_code.enqueue("code")
        assert len(drain(["default"], clock=now, limit=3)) == 3
        monkeypatch.setitem(vars(sys.modules[drain.__module__]), "MAX_MOVES", 5)
        with pytest.raises(PgQueueError, match=rf"has moved the clock 5 times, to .*, and message {result.id} "):
            drain(["default"], clock=now)


def test_an_event_that_python_does_not_read_is_refused_in_sql_and_told_by_the_reader() -> None:
    with connection.cursor() as cursor:
        for payload in ("9" * 4301, "[1, -1e4300]", "[" * 1001 + "]" * 1001):
            with pytest.raises(DatabaseError, match=r"digits|nested"), transaction.atomic():
                cursor.execute("select pgqueue_event_emit('big', %s::jsonb)", [payload])
        cursor.execute("select pgqueue_event_emit('big', %s::jsonb)", ["9" * 4300])
        cursor.execute("select pgqueue_event_put('bigger', %s::jsonb)", ["9" * 4301])
    read, unread = tasks.waiting.enqueue("big"), tasks.waiting.enqueue("bigger")
    drain()
    read.refresh()
    unread.refresh()
    assert read.return_value == 10**4300 - 1
    assert "the payload of the event 'bigger' cannot be read: Exceeds the limit" in unread.errors[0].traceback


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_event_reaches_who_waits_whether_it_is_emitted_before_or_after(when: str) -> None:
    if when == "before":
        assert emit("paid:7", {"charge": "ch_1"})
    result = tasks.waiting.enqueue("paid:7")
    drain()
    if when == "after":
        assert Message.objects.get().awaited_event == "paid:7"
        assert emit("paid:7", {"charge": "ch_1"})
        drain()
    result.refresh()
    assert result.return_value == {"charge": "ch_1"}


def test_an_event_wakes_all_who_wait_for_it_and_no_others() -> None:
    results = [tasks.waiting.enqueue("open") for _ in range(110)]  # one look takes 100
    other = tasks.waiting.enqueue("closed")
    drain()
    emit("open", True)
    drain()
    assert Message.objects.get().pk == int(other.id)
    results[-1].refresh()
    assert results[-1].return_value is True


def test_an_event_that_comes_after_the_time_out_changes_nothing() -> None:
    with clock(NOON) as now:
        result = tasks.waiting.enqueue("paid:7", hours=1)
        drain()
        now.advance(tasks.HOUR)
        drain()
        emit("paid:7")
        drain()
    result.refresh()
    assert result.return_value == "TOO LATE"


def test_an_emit_that_is_rolled_back_wakes_nobody() -> None:
    tasks.waiting.enqueue("paid:7")
    drain()
    with transaction.atomic():
        emit("paid:7")
        transaction.set_rollback(True)
    assert drain() == []


def test_a_step_emits_once_with_its_record() -> None:
    result = tasks.waiting.enqueue("done")
    tasks.emitting.enqueue("done")
    drain()
    result.refresh()
    assert result.return_value == {"by": "a step"}


def test_the_first_emit_of_a_name_counts() -> None:
    assert emit("paid:7", {"charge": 1})
    assert not emit("paid:7", {"charge": 1})
    with pytest.raises(EventConflict, match="'paid:7' was emitted before, with another payload"):
        emit("paid:7", {"charge": 2})


@pytest.mark.parametrize(
    ("name", "payload", "error"),
    [
        ("", {}, InvalidMessage),
        ("e" * 256, {}, InvalidMessage),
        ("paid:7\n", {}, InvalidMessage),
        ("pgqueue:approval:1:x", {}, InvalidMessage),
        ("paid", None, InvalidContent),
        ("paid", "a\0b", InvalidContent),
    ],
)
def test_an_event_that_the_queue_cannot_take_is_refused(name: str, payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        emit(name, payload)


@pytest.mark.parametrize("step", [False, True], ids=["then returns", "then has a step"])
def test_a_task_that_catches_its_suspension_is_suspended_all_the_same(step: bool) -> None:
    def code(context: Any) -> Any:
        with contextlib.suppress(BaseException):
            context.sleep("a while", tasks.HOUR)
        return context.step("after", tasks.note, "after") if step else context.attempt

    with clock(NOON) as now:
        tasks.CODE["code"] = code
        result = tasks.run_code.enqueue("code")
        drain()
        assert tasks.calls == []
        [message] = Message.objects.all()
        assert (message.suspended_attempt, message.dequeue_at) == (1, now.at + tasks.HOUR)
        drain(clock=now)
        result.refresh()
    assert result.return_value == ("AFTER" if step else 2)
