"""Parked messages beside all else that messages can be, and rows that no program has written."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from django_pgqueue import control
from django_pgqueue.models import Attempt, Message
from django_pgqueue.monitoring import overview
from tests.support.site.tasks import write
from tests.support.waiting import wait_until
from tests.support.watching import ended
from tests.worker.test_misbehaviour import MALFORMED, insert
from tests.worker.test_unknown import GREET, NOBODY, SHOP, an_hour_passes, create, is_parked, succeed

if TYPE_CHECKING:
    from tests.support.fixtures.workers import Session, Start

HIGH, LOW = 2**63 - 1, -(2**63)
CALL = {"args": ["ann"], "kwargs": {}}


def test_every_malformed_message_is_failed_or_parked_and_the_worker_goes_on(start: Start, session: Session) -> None:
    ids = {name: insert(session, **columns) for name, (columns, _) in MALFORMED.items()}
    ids["a long name"] = insert(session, task="é." + "x" * 250)
    ids["a name with a line"] = insert(session, task="a\nb.c")
    worker = start("-v", "0", "--threads", "2", ready=False)

    def left() -> set[str]:
        waiting = set(Message.objects.filter(parked_at=None).values_list("id", flat=True))
        return {name for name, id_ in ids.items() if id_ in waiting}

    wait_until(lambda: not left(), "each of them has ended or is parked")
    assert ended(write.enqueue("goes on")).return_value == "goes on"
    call_command("qstatus")
    assert worker.stop() == 0


STRANGE_ROWS: list[dict[str, Any]] = [
    {"task": None, "parked_at": 1, "unknown_since": 1, "dequeue_at": HIGH - 1},
    {"task": "", "parked_at": LOW, "unknown_since": HIGH, "dequeue_at": HIGH},
    {"task": "a.b", "parked_at": 1, "unknown_since": None, "dequeue_at": HIGH - 1},
    {"task": "a.b", "parked_at": HIGH, "unknown_since": LOW, "dequeue_at": LOW},
    {"task": GREET, "parked_at": LOW, "unknown_since": None, "dequeue_at": HIGH - 1, "alone_at": HIGH},
    {"task": GREET, "parked_at": None, "unknown_since": LOW, "dequeue_at": 0, "channel": "c"},
    {"task": GREET, "parked_at": HIGH, "unknown_since": HIGH, "dequeue_at": 0, "in_line": True},
]


def test_rows_that_no_program_writes_stop_no_worker(start: Start, session: Session) -> None:
    for queue, columns in product(("aaa", "default", "zzz"), STRANGE_ROWS):
        row = {"in_line": False, **columns, "queue": queue, "content": json.dumps(CALL), "last_error": None}
        names, values = ", ".join(row), ", ".join(["%s"] * len(row))
        session.rows(f"insert into pgqueue_message ({names}) values ({values})", *row.values())
    old = start("--threads", "1")
    message_id = create(session, "ann")
    wait_until(lambda: is_parked(message_id), "it is parked")
    new = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP)
    wait_until(lambda: Attempt.objects.filter(message_id=message_id).exists(), "the new worker has taken it")
    overview.taken("default")
    call_command("qstatus")
    control.pause("zzz")
    session.rows("select pgqueue_message_cancel(array(select id from pgqueue_message))")
    wait_until(lambda: not Message.objects.exists(), "all rows can be ended")
    assert ended(write.enqueue("goes on")).return_value == "goes on"
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_channel_of_one_goes_on_with_its_next_message(start: Start, session: Session) -> None:
    control.set_channel("one", max_concurrency=1)
    unknown = [create(session, "ann", channel="one") for _ in range(5)]
    known = session.value(
        "select pgqueue_message_create(%s::jsonb, p_task => %s, p_channel => 'one')",
        json.dumps(CALL),
        write.module_path,
    )
    old = start("--threads", "3")
    wait_until(lambda: Attempt.objects.filter(message_id=known, status="succeeded").exists(), "the known one has run")
    wait_until(lambda: all(map(is_parked, unknown)), "the others are parked")
    new = start("--threads", "3", PGQUEUE_TEST_IMPORTS=SHOP)
    succeed(*unknown, by=new.id)
    assert (old.stop(), new.stop()) == (0, 0)
    assert session.value("select pgqueue_lane_arm()") >= 0
    assert session.value("select running from pgqueue_channel where name = 'one'") == 0


def test_a_paused_queue_keeps_a_parked_message_until_it_is_resumed(start: Start, session: Session) -> None:
    old = start("--threads", "1")
    message_id = create(session, "ann", queue="mail")
    wait_until(lambda: is_parked(message_id), "it is parked")
    control.pause("mail")
    new = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP)
    assert ended(write.enqueue("others go on")).return_value == "others go on"
    assert not Attempt.objects.filter(message_id=message_id).exists()
    control.resume("mail")
    succeed(message_id, by=new.id)
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_worker_of_another_queue_does_not_count_for_a_parked_message(start: Start, session: Session) -> None:
    mail = start("--threads", "1", "--queues", "mail")
    other = start("--threads", "1", "--queues", "other", PGQUEUE_TEST_IMPORTS=SHOP)
    message_id = create(session, "ann", queue="mail")
    wait_until(lambda: is_parked(message_id), "it is parked")
    an_hour_passes(session)
    wait_until(lambda: Attempt.objects.filter(message_id=message_id).exists(), "it has failed")
    attempt = Attempt.objects.get(message_id=message_id)
    assert mail.id in str(attempt.error_message)
    assert other.id not in str(attempt.error_message)
    assert (mail.stop(), other.stop()) == (0, 0)


def test_a_job_that_waits_for_a_parked_one_waits_until_its_end(start: Start, session: Session) -> None:
    old = start("--threads", "1")
    first = create(session, task=NOBODY)
    after = (
        "select pgqueue_message_create_after(array[%s]::bigint[], %s::jsonb, p_task => %s, "
        "p_max_attempts => 1, p_policy => %s)"
    )
    write_call = (json.dumps(CALL), write.module_path)
    in_any_case, never = (session.value(after, first, *write_call, policy) for policy in ("finished", "succeeded"))
    wait_until(lambda: is_parked(first), "it is parked")
    assert ended(write.enqueue("others go on")).return_value == "others go on"
    assert Message.objects.count() == 3
    an_hour_passes(session)
    wait_until(lambda: not Message.objects.exists(), "all three have ended")
    statuses = dict(Attempt.objects.values_list("message_id", "status"))
    assert (statuses[first], statuses[in_any_case], statuses[never]) == ("failed", "succeeded", "cancelled")
    assert old.stop() == 0


def test_a_worker_that_restarts_again_and_again_loses_nothing(start: Start, session: Session) -> None:
    ids = [create(session, f"customer {n}") for n in range(50)]
    for _ in range(3):
        worker = start("--threads", "4")
        worker.kill()
    assert start("--threads", "4").stop() == 0
    new = start("--threads", "4", PGQUEUE_TEST_IMPORTS=SHOP)
    wait_until(lambda: not Message.objects.exists(), "all have ended", seconds=120)
    statuses = Attempt.objects.filter(message_id__in=ids, final=True).values_list("status", flat=True)
    assert list(statuses) == ["succeeded"] * 50
    assert new.stop() == 0


@pytest.mark.parametrize("version", ["1", "async"])
def test_a_unique_job_stays_unique_while_it_is_parked(start: Start, session: Session, version: str) -> None:
    unique = "select p_id from pgqueue_message_create_unique('key', %s::jsonb, p_task => %s, p_until_started => true)"
    old = start("--threads", "1")
    message_id = session.value(unique, json.dumps(CALL), GREET)
    wait_until(lambda: is_parked(message_id), "it is parked")
    assert session.value(unique, json.dumps(CALL), GREET) == message_id
    assert Message.objects.count() == 1
    new = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION=version)
    succeed(message_id, by=new.id)
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_published_message_waits_for_a_worker_that_knows_the_task_of_the_binding(
    start: Start, session: Session
) -> None:
    old = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION="1")
    session.rows("select pgqueue_exchange_declare('orders')")
    for task in (GREET, NOBODY):
        session.rows("select pgqueue_binding_declare('orders', 'order.#', 'mail', p_task => %s)", task)
    published = session.rows("""select * from pgqueue_message_publish('orders', 'order.created', '"ann"')""")
    ids = {task: message_id for message_id, _, task in published}
    wait_until(lambda: all(map(is_parked, ids.values())), "the old worker has parked both")
    new = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION="2")
    succeed(ids[GREET], by=new.id)
    assert is_parked(ids[NOBODY])
    assert (old.stop(), new.stop()) == (0, 0)
