"""Old and new code stand side by side while a deploy goes on: no message is lost by it, and no attempt is used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.functions import sql_files
from django_pgqueue.models import Attempt, Message
from tests.support.site.tasks import write
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from tests.support.fixtures.workers import Session, Start

SHOP = "tests.worker.versions.shop"
GREET = f"{SHOP}.greet"
NOBODY = "tests.support.site.tasks.nobody"


def create(session: Session, *args: Any, task: str = GREET, **columns: Any) -> int:
    """Enqueues as a deploy does that has the task: this process has not."""
    content = json.dumps({"args": list(args), "kwargs": {}})
    names = "".join(f", p_{name} => %s" for name in columns)
    call = f"select pgqueue_message_create(%s::jsonb, p_task => %s, p_max_attempts => 1{names})"
    return int(session.value(call, content, task, *columns.values()))


def flood(session: Session, number: int, *, task: str, args: str = "[]", version: str | None = None) -> None:
    """Enqueues so many messages at once, which are before all others."""
    session.rows(
        "insert into pgqueue_message (task, content, dequeue_at, version) "
        "select %s, %s, 0, %s from generate_series(1, %s)",
        task, f'{{"args": {args}, "kwargs": {{}}}}', version, number,
    )  # fmt: skip


def an_hour_passes(session: Session) -> None:
    """For the messages that are parked now."""
    session.rows("update pgqueue_message set unknown_since = unknown_since - 3600000, parked_at = parked_at - 3600000")


def is_parked(message_id: int) -> bool:
    return Message.objects.filter(pk=message_id, parked_at__isnull=False).exists()


def attempts(*message_ids: int) -> list[tuple[str, int, str]]:
    """Status, number and worker of the attempts of these messages."""
    found = Attempt.objects.filter(message_id__in=message_ids).order_by("id")
    return [(one.status, one.attempt, str(one.worker)) for one in found]


def succeed(*message_ids: int, by: str | None = None) -> None:
    wait_until(lambda: len(attempts(*message_ids)) >= len(message_ids), "all have ended")
    for status, attempt, worker in attempts(*message_ids):
        assert (status, attempt) == ("succeeded", 1)
        assert by is None or worker == by


def test_an_old_worker_releases_messages_that_only_a_new_one_knows(start: Start, session: Session) -> None:
    old = start("--threads", "2")
    ids = [create(session, f"customer {n}") for n in range(20)]
    wait_until(lambda: all(map(is_parked, ids)), "the old worker has parked all of them")
    assert ended(write.enqueue("known")).return_value == "known"
    assert attempts(*ids) == []
    new = start("--threads", "2", PGQUEUE_TEST_IMPORTS=SHOP)
    succeed(*ids, by=new.id)
    assert (old.stop(), new.stop()) == (0, 0)
    assert old.output.count("unknown task=") == 1, "one line for the task, not for each message"


def test_a_sleeping_new_worker_takes_messages_parked_by_an_old_one_at_once(start: Start, session: Session) -> None:
    old = start("--threads", "1")
    new = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP)
    ids = []
    for n in range(10):
        ids.append(create(session, f"customer {n}"))
        succeed(*ids, by=new.id)
    assert (old.stop(), new.stop()) == (0, 0)


@pytest.mark.parametrize(
    ("version", "args"),
    [("1", ("ann", "Hi")), ("2", ("ann",)), ("async", ("ann", "Hi")), ("decorated", ("ann", "Hi"))],
)
def test_arguments_that_a_worker_cannot_take_wait_for_one_that_can(
    start: Start, session: Session, version: str, args: tuple[str, ...]
) -> None:
    first = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION=version, PGQUEUE_TEST_SIGNALS="1")
    message_id = create(session, *args)
    wait_until(lambda: is_parked(message_id), "it is parked")
    assert "cannot take these arguments" in str(Message.objects.get(pk=message_id).last_error)
    assert attempts(message_id) == []
    other = "1" if version == "2" else "2"
    second = start("--threads", "1", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION=other)
    succeed(message_id, by=second.id)
    assert (first.stop(), second.stop()) == (0, 0)


def test_a_message_unknown_to_all_workers_fails_in_the_end_and_names_them(start: Start, session: Session) -> None:
    workers = [start("--threads", "1", options={"UNKNOWN_TASK_SECONDS": 3600}) for _ in range(2)]
    wait_until(lambda: session.value("select count(*) from pgqueue_worker where tasks") == 2, "both have a row")
    message_id = create(session, task=NOBODY)
    wait_until(lambda: is_parked(message_id), "it is parked")
    an_hour_passes(session)
    wait_until(lambda: bool(attempts(message_id)), "it has failed", seconds=60)
    attempt = Attempt.objects.get(message_id=message_id)
    assert (attempt.status, attempt.attempt) == ("failed", 0)
    assert attempt.error_class == "django_pgqueue.exceptions.UnknownTask"
    for worker in workers:
        assert worker.id in str(attempt.error_message)
        assert worker.stop() == 0
    assert "has no 'nobody'" in str(attempt.error_message)


def test_known_messages_begin_even_if_the_connection_breaks_during_parking(start: Start, session: Session) -> None:
    text = sql_files.current("pgqueue_message_park")
    head, _, _ = text.partition("set search_path")
    breaks = "as $$ begin perform pg_terminate_backend(pg_backend_pid()); return; end $$"
    session.rows(head + breaks)
    try:
        with session.connection.transaction():
            unknown, known = create(session, "ann"), create(session, "x", task=write.module_path)
        worker = start("--threads", "2", ready=False)
        succeed(known)
    finally:
        session.rows(text)
    wait_until(lambda: is_parked(unknown), "the other one is parked when it can be", 60)
    assert worker.stop() == 0


def test_a_burst_runs_known_messages_and_leaves_unknown_ones(start: Start, session: Session) -> None:
    ids = [create(session, "ann"), create(session, task=NOBODY)]
    assert start("--burst", ready=False).ends() == 0
    assert all(map(is_parked, ids))
    assert start("--burst", ready=False, PGQUEUE_TEST_IMPORTS=SHOP).ends() == 0
    succeed(ids[0])
    assert is_parked(ids[1])


def test_a_burst_beside_an_idle_worker_ends(start: Start, session: Session) -> None:
    worker = start("--threads", "4")
    create(session, task=NOBODY)
    wait_until(lambda: Message.objects.filter(parked_at__isnull=False).exists(), "it is parked")

    def says_room() -> bool:
        """Single jobs keep it awake, with room, and many wake it up."""
        asleep, has_room = session.rows("select is_asleep, has_room from pgqueue_worker where tasks")[0]
        for _ in range(40 if asleep else 1):
            write.enqueue("again")
        return bool(has_room)

    wait_until(says_room, "it has room")
    for _ in range(3):
        assert start("--burst", ready=False).ends() == 0
        assert start("--burst", ready=False, PGQUEUE_TEST_IMPORTS=SHOP).ends() == 0
    assert worker.stop() == 0


def test_a_flood_of_unknown_messages_does_not_block_other_jobs(start: Start, session: Session) -> None:
    flood(session, 5000, task=NOBODY)
    behind = write.enqueue("behind")
    worker = start("--threads", "2")
    assert ended(behind).return_value == "behind"
    wait_until(lambda: not Message.objects.filter(parked_at=None).exists(), "all are parked")
    assert Attempt.objects.exclude(status="succeeded").count() == 0
    assert worker.stop() == 0


def test_no_worker_spins_on_unknown_messages(start: Start, session: Session) -> None:
    worker = start("--threads", "2")
    ids = [create(session, f"customer {n}") for n in range(50)]
    wait_until(lambda: all(map(is_parked, ids)), "all are parked")
    versions = "select id, xmin::text from pgqueue_message order by id"
    before = session.rows(versions)
    seen = "select seen_at from pgqueue_worker where tasks"
    read = (
        "select sum(idx_scan)::integer from pg_stat_user_indexes "
        "where indexrelname in ('pgqueue_message_parked_ix', 'pgqueue_message_unknown_ix')"
    )

    def refreshes(times: int) -> None:
        for _ in range(times):
            last = session.value(seen)
            wait_until(lambda last=last: session.value(seen) > last, "the worker has refreshed its row")  # type: ignore[misc]

    refreshes(3)
    reads = session.value(read)
    refreshes(4)
    assert session.rows(versions) == before, "no row was written"
    assert session.value(read) - reads <= 4 * 30, "it looks when it refreshes its row, and each second while it is busy"
    assert worker.stop() == 0


def test_messages_whose_arguments_fit_are_taken_at_once(start: Start, session: Session) -> None:
    """Calls of two deploys, each of which only one worker can take: neither stands in the way of the other."""
    first = start("--threads", "2", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION="1")
    second = start("--threads", "2", PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION="2")
    of_first, of_second = [], []
    for n in range(40):
        of_first.append(create(session, f"customer {n}"))
        of_second.append(create(session, f"customer {n}", "Hi"))
    succeed(*of_first, by=first.id)
    succeed(*of_second, by=second.id)
    assert (first.stop(), second.stop()) == (0, 0)


def test_a_flood_of_invalid_arguments_does_not_hide_messages_that_fit(start: Start, session: Session) -> None:
    old = start("--threads", "2")
    flood(session, 3000, task=GREET, args="[1, 2, 3]")
    ids = [create(session, f"customer {n}") for n in range(20)]
    wait_until(lambda: not Message.objects.filter(parked_at=None).exists(), "all are parked")
    new = start("--threads", "2", PGQUEUE_TEST_IMPORTS=SHOP)
    succeed(*ids, by=new.id)
    assert Message.objects.count() == 3000
    they = "select count(*) from pgqueue_worker where %s = any (lacks) or %s = any (refuses)"
    wait_until(lambda: session.value(they, GREET, GREET) == 2, "both have recorded that they lack or refuse the rest")
    those = (
        "select array[array_agg(id) filter (where lacks is not null), array_agg(id) filter (where refuses is not null)]"
    )
    assert session.value(those + " from pgqueue_worker where tasks") == [[old.id], [new.id]]
    assert (old.stop(), new.stop()) == (0, 0)
