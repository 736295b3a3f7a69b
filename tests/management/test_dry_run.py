"""``qworker --dry-run``: what would be dequeued next, and why the rest would not."""

from __future__ import annotations

import datetime as dt
import io
import re
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.backend import bulk
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import clock
from tests.support.site.shelf import note, post

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = dt.timedelta(hours=1)
NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def explained(*flags: str) -> list[str]:
    out = io.StringIO()
    call_command("qworker", "--dry-run", *flags, stdout=out)
    return out.getvalue().splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of a table, whatever the width of its columns."""
    return [re.split(r" {2,}", line.strip()) for line in lines]


def everything() -> list[Any]:
    return [*Message.objects.order_by("id").values(), *Attempt.objects.order_by("id").values()]


def test_the_next_messages_are_shown_in_their_order() -> None:
    with clock(NOON):
        second, third, first = (task.enqueue(1).id for task in (note, post.using(priority=-5), post))
        before = everything()
        title, *lines = explained()
        assert everything() == before
    since, a_note, a_post = (
        "2030-06-01 12:00:00+00:00",
        "tests.support.site.shelf.note",
        "tests.support.site.shelf.post",
    )
    assert title == "Next, in this order (all queues):"
    assert rows(lines) == [
        ["#", "id", "queue", "priority", "due since", "attempt", "task"],
        ["1", first, "mail", "5", since, "1", a_post],
        ["2", second, "default", "0", since, "1", a_note],
        ["3", third, "mail", "-5", since, "1", a_post],
    ]
    assert len({line.rindex("tests.") for line in lines[1:]}) == 1


def test_the_order_is_that_of_the_dequeue() -> None:
    for n in range(30):
        note.using(priority=n % 3).enqueue(n)
    shown = [int(line.split()[1]) for line in explained("30")[2:]]
    assert len(shown) == 30
    dequeued = functions.message_dequeue(connection, limit=30, worker="test", tasks=True)
    assert shown == [message.id for message in dequeued]


def test_the_reason_is_shown_for_messages_that_are_not_next() -> None:
    with clock(NOON):
        scheduled = note.using(run_after=HOUR).enqueue().id
        raw = str(functions.enqueue(connection, functions.NewMessage(content="1")).id)
        paused = note.using(queue_name="paused").enqueue().id
        elsewhere = note.using(queue_name="elsewhere").enqueue().id
        locked = note.using(queue_name="locked").enqueue().id
        assert functions.message_dequeue(connection, queues=["locked"], worker="host-1", tasks=True)
        control.pause("paused", by="Ada {}")
        before = everything()
        lines = explained("--exclude-queues", "elsewhere")
        assert everything() == before
    assert lines[:3] == ["Nothing is ready (all queues except elsewhere).", "", "Not now:"]
    a_note = "tests.support.site.shelf.note"
    assert rows(lines[3:]) == [
        ["id", "queue", "priority", "task", "because"],
        [raw, "default", "0", "(raw)", "It is a raw message: Queue.receive() takes it, and no worker."],
        [paused, "paused", "0", a_note, "Queue paused is paused since 2030-06-01 12:00:00+00:00 by Ada {}."],
        [elsewhere, "elsewhere", "0", a_note, "This worker does not serve its queue."],
        [locked, "locked", "0", a_note, "It is locked by host-1 until 2030-06-01 12:01:00+00:00."],
        [scheduled, "default", "0", a_note, "It is scheduled for 2030-06-01 13:00:00+00:00, in 1 h."],
    ]


def test_of_several_reasons_the_one_that_needs_an_operator_is_shown() -> None:
    with clock(NOON):
        note.using(queue_name="paused", run_after=HOUR).enqueue()
        control.pause("paused", by="Ada")
        assert explained()[-1].endswith("Queue paused is paused since 2030-06-01 12:00:00+00:00 by Ada.")
        assert explained("--queues", "mail")[-1].endswith("This worker does not serve its queue.")


def test_a_job_that_waits_for_others_names_them_until_they_have_ended() -> None:
    first = note.enqueue()
    second = note.using(after=[first], priority=50).enqueue().id
    before = everything()
    lines = explained()
    assert everything() == before
    assert [row[1] for row in rows(lines[2:3])] == [first.id]
    because = f"It waits for 1 job, {first.id}, which has not ended yet."
    assert rows(lines[-1:]) == [[second, "default", "50", "tests.support.site.shelf.note", because]]
    assert control.cancel(first) == "cancelled"
    functions.message_settle(connection)
    assert [row[1] for row in rows(explained()[2:])] == [second]


def test_a_message_whose_lock_ran_out_is_among_the_next_and_stays_as_it_is() -> None:
    with clock(NOON) as now:
        note.enqueue()
        functions.message_dequeue(connection, worker="gone", tasks=True)
        now.advance(HOUR)
        before = everything()
        assert explained()[2].split()[-2:] == ["2", "tests.support.site.shelf.note"]
        assert everything() == before


def test_as_many_messages_are_shown_as_requested() -> None:
    bulk.enqueue_many(note, range(50))
    ids = [str(row["id"]) for row in everything()]
    lines = explained("3")
    assert [line.split()[1] for line in lines[2:5]] == ids[:3]
    assert [line.split()[0] for line in lines[8:]] == ids[3:6]
    assert [line.split()[-3:] for line in lines[8:]] == [["messages", "come", "first."]] * 3
    assert len(explained()) == 2 + 20 + 3 + 20


def test_explain_is_an_alias_of_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("qworker", "--explain")
    assert capsys.readouterr().out == "Nothing is ready (all queues).\n"


@pytest.mark.parametrize("value", ["0", "-1", "all"])
def test_a_wrong_number_is_named(value: str) -> None:
    with pytest.raises(CommandError, match=f"--dry-run.*{value}"):
        call_command("qworker", f"--dry-run={value}")
