"""The history: attempts that have ended, in partitions by day, which are dropped when their copy is the same."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON, end_one, eventually, partition_of, token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC
NAME = "pgqueue_attempt_20231114"
APPEND = "select pgqueue_attempt_append(m, %s, %s) from pgqueue_message m where m.id = %s"


# pgqueue_attempt_append: one row of history, for the functions that end attempts


def test_it_copies_the_message_as_it_was_while_the_attempt_ran(session: Session) -> None:
    session.set_clock(NOON)
    said = {"queue": "mail", "channel": "tenant", "task": "shop.tasks.send", "priority": 3, "headers": {"trace": 1}}
    session.create({"n": 1}, **said)
    held = session.take(worker="w1", tasks=True)
    session.set_clock(NOON + 10)
    session.rows(APPEND, ["failed", True, held.id])

    [end] = session.history()
    copied = ("dequeue_at", "created_at", "attempt", "max_attempts", "worker", "content", *said)
    assert {name: getattr(end, name) for name in copied} == {name: getattr(held, name) for name in copied}
    assert (end.message_id, end.started_at, end.finished_at.timestamp() * 1000) == (held.id, held.locked_at, NOON + 10)


def test_only_the_last_attempt_keeps_the_content(session: Session) -> None:
    message_id = session.create({"n": 1})
    session.rows(APPEND, ["retried", False, message_id])
    session.rows(APPEND, ["failed", True, message_id])
    assert [(end.final, end.content) for end in session.history()] == [(False, None), (True, {"n": 1})]


def test_an_attempt_with_final_null_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        session.rows(APPEND, ["failed", None, session.create()])


# pgqueue_attempt_partition: the partition of one day of the history


def test_a_partition_is_created_once(session: Session) -> None:
    assert session.value("pgqueue_attempt_partition", day=DAY) is True
    assert session.value("pgqueue_attempt_partition", day=DAY) is False
    bounds = session.one("select pg_get_expr(relpartbound, oid) from pg_class where relname = %s", [NAME])
    assert bounds == "FOR VALUES FROM ('2023-11-14 00:00:00+00') TO ('2023-11-15 00:00:00+00')"


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_days_are_those_of_utc_wherever_the_session_is(session: Session, zone: str) -> None:
    session.rows("select set_config('timezone', %s, false)", [zone])
    session.value("pgqueue_attempt_partition", day=DAY)
    last_ms_before = int(dt.datetime(2023, 11, 14, tzinfo=dt.UTC).timestamp()) * 1000 - 1
    ends = [end_one(session, last_ms_before + ms) for ms in (0, 1, 86_400_000, 86_400_001)]
    outside, inside = "pgqueue_attempt_default", NAME
    assert [partition_of(session, end) for end in ends] == [outside, inside, inside, outside]


def test_rows_of_the_default_partition_move_into_the_new_one(session: Session) -> None:
    stray, other_day = end_one(session, NOON), end_one(session, NOON + 86_400_000)
    before = session.history()
    session.value("pgqueue_attempt_partition", day=DAY)
    assert partition_of(session, stray) == NAME
    assert partition_of(session, other_day) == "pgqueue_attempt_default"
    assert session.history() == before


def test_a_partition_has_the_indexes_of_the_history(session: Session) -> None:
    session.value("pgqueue_attempt_partition", day=DAY)
    made, kept = (
        session.column(
            """
            select replace(pg_get_indexdef(indexrelid), indrelid::regclass::text, 'the_table')
            from pg_index where indrelid = %s::regclass
            """,
            [name],
        )
        for name in (NAME, "pgqueue_attempt_default")
    )
    assert len(made) == len(kept) == 4
    parents = session.column(
        "select count(*) from pg_inherits i join pg_index x on x.indexrelid = i.inhrelid where indrelid = %s::regclass",
        [NAME],
    )
    assert parents == [4], "every index is attached to that of the history"


def test_creating_a_partition_does_not_block_attempts_of_other_days(connect: Connect) -> None:
    maker, worker = connect(autocommit=False), connect()
    worker.create()
    worker.rows("set timezone = 'UTC'")
    maker.value("pgqueue_attempt_partition", day=DAY)
    worker.rows("set lock_timeout = '1s'")

    assert worker.value("pgqueue_message_complete", **token(worker.take())) is True
    today = worker.one("select current_date")
    tomorrow = today + dt.timedelta(days=1)
    read = worker.rows(f"select 1 from pgqueue_attempt where finished_at >= '{today}' and finished_at < '{tomorrow}'")

    assert len(read) == 1
    maker.rollback()


# pgqueue_attempt_fingerprint: what the history of a day comes to


def fingerprint(session: Session) -> str:
    found: str = session.value("pgqueue_attempt_fingerprint", day=DAY)
    return found


def test_a_day_without_attempts_has_a_fingerprint(session: Session) -> None:
    assert fingerprint(session) == "0:0:0"


def test_it_counts_the_attempts_of_its_day_only(session: Session) -> None:
    for at_ms in (NOON, NOON + 1, NOON + 86_400_000):
        end_one(session, at_ms)
    rows, ids, _ = fingerprint(session).split(":")
    assert [int(rows), int(ids)] == [2, sum(attempt.id for attempt in session.history()[:2])]


@pytest.mark.parametrize(
    "change",
    [
        *("queue = 'mail'", "result = '1'", "content = null", "finished_at = finished_at + '1 us'", "final = false"),
        *("created_at = created_at + '1 us'", "started_at = started_at - interval '1 us'", "started_at = null"),
        *("transaction_id = transaction_id + 1", "channel = 'c'", "unique_key = 'c'"),
    ],
)
def test_a_different_row_gives_a_different_fingerprint(session: Session, change: str) -> None:
    end_one(session, NOON)
    before = fingerprint(session)
    session.rows(f"update pgqueue_attempt set {change}")
    assert fingerprint(session) != before


def test_a_value_in_another_column_gives_a_different_fingerprint(session: Session) -> None:
    end_one(session, NOON)
    found = set()
    for channel, key in (("c", None), (None, "c")):
        session.rows("update pgqueue_attempt set channel = %s, unique_key = %s", [channel, key])
        found.add(fingerprint(session))
    assert len(found) == 2


# pgqueue_attempt_drop: the history of a day is dropped when its copy is the same


@pytest.fixture
def day(connect: Connect) -> Iterator[Session]:
    """A session, and a day years ago with three attempts."""
    session = connect()
    session.value("pgqueue_attempt_partition", day=DAY)
    for _ in range(3):
        end_one(session, NOON)
    session.set_clock(None)
    yield session
    session.rows(f"drop table if exists {NAME}")


def drop(session: Session, copied: str) -> bool:
    dropped: bool = session.value("pgqueue_attempt_drop", day=DAY, fingerprint=copied)
    return dropped


def test_a_day_that_was_copied_is_dropped(day: Session) -> None:
    assert drop(day, fingerprint(day))
    assert day.one("select to_regclass(%s)", [NAME]) is None
    assert day.history() == []


def test_a_day_with_more_rows_than_its_copy_stays(day: Session) -> None:
    copied = fingerprint(day)
    end_one(day, NOON)
    assert not drop(day, copied)
    assert len(day.history()) == 4


def test_a_day_without_a_partition_drops_nothing(session: Session) -> None:
    assert not drop(session, "0:0:0")


def test_the_partition_of_today_is_never_dropped(session: Session) -> None:
    today = session.one("select (now() at time zone 'UTC')::date")
    copied = session.value("pgqueue_attempt_fingerprint", day=today)
    assert not session.value("pgqueue_attempt_drop", day=today, fingerprint=copied)


def test_a_commit_between_check_and_lock_keeps_the_day(day: Session, connect: Connect) -> None:
    copied = fingerprint(day)
    writer, dropper = connect(autocommit=False), connect()
    end_one(writer, NOON)  # holds a lock of the table, and nobody sees the row
    with ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(drop, dropper, copied)
        eventually(lambda: day.waits_for_a_lock(dropper) or dropped.done())
        writer.commit()
        with suppress(psycopg.errors.LockNotAvailable):  # this machine was slow: nothing is done then either
            assert dropped.result() is False
    assert len(day.history()) == 4


def test_an_unavailable_table_lock_is_an_error_and_drops_nothing(day: Session, connect: Connect) -> None:
    copied, reader = fingerprint(day), connect(autocommit=False)
    reader.history()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        drop(day, copied)
    reader.rollback()
    assert len(day.history()) == 3


# pgqueue_attempt_error_group: errors that are one and the same


OF_UNKNOWN = "django_pgqueue.exceptions.UnknownTask"
NOBODY = "No worker has known the task {} for 3600 seconds. Living workers of the queue {} that lack it: {}. The last …"


def test_errors_of_unknown_tasks_are_one_group_for_each_task(session: Session) -> None:
    def group(text: str, trace: str | None = None) -> str:
        arguments = {"class": OF_UNKNOWN, "message": text, "traceback": trace}
        return str(session.value("pgqueue_attempt_error_group", **arguments))

    one = group(NOBODY.format("shop.tasks.send", "mail", "web-x2x9z-7-5f0c on web-x2x9z"))
    assert one == group(NOBODY.format("shop.tasks.send", "bulk.mail", "a on b, c on d"))
    assert one == group("The task 'shop.tasks.send' is not registered: shop.tasks has not …", TRACE)
    assert one == group("'shop.tasks.send' is not a task: shop.tasks has no 'send'.", TRACE)
    assert one != group(NOBODY.format("shop.tasks.pack", "mail", "web-x2x9z-7-5f0c on web-x2x9z"))
    assert group("odd") == group("odd") != one
    undotted = group(NOBODY.format("send", "bulk.mail", "web-1.example.com-7-5f0c on web-1"))
    assert undotted == group(NOBODY.format("send", "mail", "web-2.example.com-7-77aa on web-2"))
    assert undotted != group(NOBODY.format("pack", "bulk.mail", "web-1.example.com-7-5f0c on web-1"))
    assert undotted == group("'send' is not the dotted path of a task.")


def test_lost_attempts_are_one_group_whatever_the_worker_is_named(session: Session) -> None:
    def group(text: str) -> str:
        arguments = {"class": "django_pgqueue.exceptions.AttemptLost", "message": text, "traceback": None}
        return str(session.value("pgqueue_attempt_error_group", **arguments))

    one = group("worker web-x2x9z-7-5f0c8a21 died while it ran (loss 1 of 20)")
    assert one == group("worker web-k8jqw-12-00c8fe11 died while it ran (loss 2 of 20)")
    assert one != group("the lock of worker web-x2x9z-7-5f0c8a21 ran out at 2026-11-20 11:25:20 UTC (loss 1 of 20)")


TRACE = 'Traceback …\n  File "/srv/{where}/shop/tasks.py", line {line}, in send\n    mail()\nOSError: {text}'


def test_errors_of_one_function_are_one_group_whatever_the_line_and_the_message(session: Session) -> None:
    def group(text: str, **place: Any) -> str:
        trace = TRACE.format(**{"where": "a", "line": 1, **place}, text=text)
        return str(session.value("pgqueue_attempt_error_group", **{"class": "OSError"}, message=text, traceback=trace))

    assert group("no route") == group("no disk", line=9, where="b")
    assert group("no route") != session.value(
        "pgqueue_attempt_error_group", **{"class": "OSError"}, message="no route", traceback=None
    )
