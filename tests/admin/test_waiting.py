"""Why a message does not run yet: each reason, where it is one."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import control, functions
from django_pgqueue.models import Message
from django_pgqueue.monitoring import waiting
from tests.admin.test_schedule import by_hand
from tests.support.fixtures.admin import MESSAGES, claim, complete, fail, lose, retry, send, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("clock")

HOUR_MS = 3_600_000
SECOND = dt.timedelta(seconds=1)
UNKNOWN = "no estimate: no message of this queue has ended in the last 10 minutes"


def why(root: Visitor, pk: int) -> list[str]:
    return root.open(f"{MESSAGES}{pk}/change/").reasons


@pytest.fixture(autouse=True)
def worker(clock: Clock) -> None:
    sign_in(queues=["default", "mail", "other"])


def test_the_page_names_the_scheduled_time(root: Visitor, clock: Clock) -> None:
    due = clock.at + dt.timedelta(hours=1)
    assert why(root, send(delay_ms=HOUR_MS)) == [f"It is scheduled for {due:%Y-%m-%d %H:%M:%S}, in 1 h."]


def test_the_page_names_the_retry(root: Visitor, clock: Clock) -> None:
    pk = send()
    retry(claim()[0], delay_ms=HOUR_MS)
    due = clock.at + dt.timedelta(hours=1)
    assert why(root, pk) == [
        (
            "It waits for its retry: attempt 1 ended with an error. "
            f"The next one is due at {due:%Y-%m-%d %H:%M:%S}, in 1 h."
        )
    ]


def test_the_page_names_the_quarantine(root: Visitor, clock: Clock) -> None:
    pk = send()
    [held] = claim()
    functions.worker_died(connection, held.worker, ids=[pk], attempts=[held.attempt], running=[True])
    assert why(root, pk)[0] == (
        "It is quarantined: its last worker died while it ran. "
        "A worker takes it alone, so that it can harm no other job."
    )
    [row] = root.open_with_all_columns(MESSAGES).rows
    assert row["status"] == "scheduled quarantined"
    assert row["attempt"] == "1 of 6, 1 of 20 lost"


def test_the_page_names_the_jobs_it_waits_for(root: Visitor) -> None:
    first, second = send(queue="a"), send(queue="b")
    pk = send(after=functions.After((first, second)))
    assert why(root, pk) == [f"It waits for 2 jobs, of which {first}, {second} have not ended yet."]
    complete(claim("a")[0])
    assert why(root, pk) == [f"It waits for 2 jobs, of which {second} has not ended yet."]
    complete(claim("b")[0])
    assert why(root, pk) == ["All 2 jobs that it waits for have ended. A worker will notice this soon."]
    assert why(root, send(after=functions.After((first,)))) == [
        "The job that it waits for has ended. A worker will notice this soon."
    ]


def test_the_page_names_the_paused_queue(root: Visitor, clock: Clock) -> None:
    pk = send()
    control.pause("default", by="Ada <b>")
    assert why(root, pk)[0] == f"Queue default is paused since {clock.at:%Y-%m-%d %H:%M:%S} by Ada <b>."


def test_the_page_names_the_queue_without_a_worker(root: Visitor) -> None:
    [reason, _] = why(root, send(queue="slow"))
    assert reason.startswith("No worker that serves the queue “slow” has been seen")
    assert "manage.py qworker --queues slow" in reason
    assert len(why(root, send(queue="slow", task=None))) == 1, "raw messages have consumers of their own"


def test_the_page_names_the_lost_worker(root: Visitor) -> None:
    pk = send()
    lose()
    assert why(root, pk) == ["Its worker, worker-1, has gone away. The next worker that polls takes the message over."]


def test_a_running_message_shows_no_reason_to_wait(root: Visitor) -> None:
    pk = send()
    claim()
    page = root.open(f"{MESSAGES}{pk}/change/")
    assert page.reasons == []
    assert "waits because" not in page.fields


def test_the_position_counts_messages_that_workers_take_first(root: Visitor) -> None:
    """Of a higher priority, or of the same and due earlier: and nobody else."""
    pk = send(priority=5, dequeue_at=100)
    before = [
        send(priority=100, dequeue_at=2_000_000),
        send(priority=6),
        send(priority=5, dequeue_at=99),
        send(priority=5, dequeue_at=-(2**63)),
    ]
    send(priority=5, dequeue_at=100)
    send(priority=4, dequeue_at=0)
    send(priority=7, delay_ms=HOUR_MS)
    send(priority=7, task=None)
    send(priority=7, queue="other")
    assert why(root, pk) == [f"It is ready: position {len(before) + 1} of queue default, {UNKNOWN}."]
    taken = [message.id for message in claim(limit=5)]
    assert set(taken[:-1]) == set(before)
    assert taken[-1] == pk


def test_the_estimated_wait_follows_from_recently_ended_attempts(root: Visitor, clock: Clock) -> None:
    for _ in range(10):
        send()
        complete(claim()[0])
        clock.advance(2 * SECOND)
    sent = [send() for _ in range(5)]
    assert why(root, sent[4]) == ["It is ready: position 5 of queue default, about 10 s at the present rate."]
    send(queue="other")
    assert UNKNOWN in why(root, send(queue="other"))[-1], "other queues do not count"
    clock.advance(dt.timedelta(minutes=11))
    assert UNKNOWN in why(root, sent[4])[-1], "what was long ago does not count either"


def test_the_position_is_counted_up_to_a_limit(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_POSITION", 3)
    sent = [send() for _ in range(5)]
    assert why(root, sent[2])[0].startswith("It is ready: position 3 of queue default, ")
    assert why(root, sent[4]) == ["It is ready: position 3+ of queue default."]


class TestChannels:
    def test_the_page_names_the_full_channel(self, root: Visitor) -> None:
        functions.channel_set(connection, "acme", max_concurrency=2)
        sent = [send(channel="acme") for _ in range(4)]
        held = claim(limit=4)
        assert len(held) == 2
        [room, place] = why(root, sent[3])
        assert room == "It waits for channel acme: 2 of 2 running."
        assert place == f"It is ready: position 2 of channel acme, {UNKNOWN}."
        complete(held[0])
        [place] = why(root, sent[3])
        assert place.startswith("It is ready: position 2 of channel acme, about ")

    def test_the_page_names_the_stopped_channel(self, root: Visitor) -> None:
        functions.channel_set(connection, "acme", max_concurrency=0)
        assert why(root, send(channel="acme"))[0] == "Channel acme stands still: none of its messages may run."

    def test_the_page_names_the_release_interval(self, root: Visitor, clock: Clock) -> None:
        functions.channel_set(connection, "acme", release_interval_ms=60_000)
        sent = [send(channel="acme") for _ in range(2)]
        complete(claim()[0])
        clock.advance(20 * SECOND)
        assert why(root, sent[1])[0] == "Channel acme begins one message every 1 min: the next one in 40 s."

    def test_the_position_counts_only_messages_of_the_channel(self, root: Visitor) -> None:
        for _ in range(3):
            send()
            send(channel="other")
        assert "position 1 of channel acme" in why(root, send(channel="acme"))[-1]
        assert "position 4 of queue default" in why(root, send())[-1]


class TestRelated:
    def related(self, root: Visitor, pk: int) -> list[str]:
        return [item.text for item in root.open(f"{MESSAGES}{pk}/change/").fields["other messages"].all("li")]

    def test_a_batch_names_its_jobs_and_each_job_the_others(self, root: Visitor) -> None:
        jobs = [send(queue=f"q{number}") for number in range(3)]
        callback = send(after=functions.After(tuple(jobs)))
        complete(claim("q0")[0])
        fail(claim("q1")[0])
        assert self.related(root, callback) == [
            f"waits for {jobs[0]} (succeeded), {jobs[1]} (failed), {jobs[2]} (ready)"
        ]
        assert self.related(root, jobs[2]) == [
            f"required by {callback} (waits for others)",
            f"in a batch with {jobs[0]} (succeeded), {jobs[1]} (failed)",
        ]

    def test_the_end_of_related_jobs_needs_the_permission_for_the_history(
        self, visitor: Callable[..., Visitor]
    ) -> None:
        job = send(queue="q0")
        callback = send(after=functions.After((job,)))
        fail(claim("q0")[0])
        assert self.related(visitor("view_message"), callback) == [f"waits for {job} (ended)"]

    def test_the_page_links_to_the_original_message(self, root: Visitor) -> None:
        first = send()
        complete(claim()[0])
        [[attempt]] = sql("select id from pgqueue_attempt")
        [again] = functions.attempt_enqueue(connection, [attempt])
        assert self.related(root, again) == [f"enqueued again from {first}"]

    def test_the_page_names_its_schedule(self, root: Visitor) -> None:
        by_hand("night <b>")
        pk = send(headers='{"schedule": "night <b>"}')
        assert self.related(root, pk) == ["enqueued by the schedule night <b>"]

    def test_unknown_headers_show_no_relation(self, root: Visitor) -> None:
        for headers in (None, "[]", "1", '{"schedule": {"a": 1}, "enqueued_again_from": "x"}'):
            pk = send(headers=headers)
            assert root.open(f"{MESSAGES}{pk}/change/").response.status_code == 200
        assert Message.objects.count() == 4

    def test_a_large_batch_is_shortened(self, root: Visitor) -> None:
        jobs = [send() for _ in range(25)]
        callback = send(after=functions.After(tuple(jobs)))
        [line] = self.related(root, callback)
        assert line.endswith(" and 5 more")

    def test_the_page_of_a_job_of_a_large_batch_reads_no_more_of_it_than_it_names(self, root: Visitor) -> None:
        jobs = [send() for _ in range(60)]
        send(after=functions.After(tuple(jobs)))
        with CaptureQueriesContext(connection) as queries:
            related = self.related(root, jobs[0])
        assert related[1].endswith(" and 39 more")
        assert not any(f"{jobs[50]}, {jobs[51]}" in one["sql"] for one in queries)
