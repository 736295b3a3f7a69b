"""Bulks of messages with unique keys stay out of each other's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def lock(session: Session, task: str | None = "shop.tasks.price", *, alone: bool = False) -> bool:
    """Whether it has it, at once or after a wait.  Who waits in vain goes on without."""
    session.rows("set local lock_timeout = '100ms'")
    had = holds(session)
    session.value("pgqueue_message_lock_keys", task=task, alone=alone)
    return holds(session) > had


def holds(session: Session) -> int:
    return int(
        session.one("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and granted")
    )


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("task", ["shop.tasks.price", None])
def test_an_exclusive_lock_lasts_until_the_transaction_ends(
    connect: Connect, task: str | None, *, first: bool, second: bool
) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, task, alone=first)
    assert lock(other, task, alone=second) is not (first or second)
    one.commit()
    other.commit()
    assert lock(other, task, alone=second)


def test_tasks_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, alone=True)
    assert lock(other, "shop.tasks.send", alone=True)
    assert lock(other, None, alone=True)


def test_the_lock_may_be_taken_repeatedly(connect: Connect) -> None:
    session = connect(autocommit=False)
    for alone in (True, False, True):
        session.value("pgqueue_message_lock_keys", task="shop.tasks.price", alone=alone)
    assert holds(session)


def test_messages_without_keys_do_not_wait_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    other.rows("set statement_timeout = '5s'")
    assert len(other.ids("pgqueue_message_create_many", messages=messages(keyed=False))) == 4


def test_a_bulk_with_keys_waits_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other, watcher = connect(autocommit=False), connect(), connect()
    assert lock(alone, "b", alone=True)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(other.ids, "pgqueue_message_create_many", messages=messages(keyed=True))
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: watcher.one(waits) or made.done(), "they wait")
        assert not made.done()
        alone.rollback()
        assert len(made.result()) == 4


def test_a_bulk_with_keys_continues_after_a_lock_timeout(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    other.rows("set lock_timeout = '100ms'")
    assert len(other.ids("pgqueue_message_create_many", messages=messages(keyed=True))) == 4


def messages(*, keyed: bool) -> list[dict[str, object]]:
    return [
        {"content": n, "task": task, "unique_key": f"{task}{n}" if keyed else None} for n, task in enumerate("ccbb")
    ]


def test_a_single_key_does_not_wait_for_an_exclusive_lock(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, alone=True)
    other.rows("set lock_timeout = '100ms'")
    [row] = other.call("pgqueue_message_create_unique", unique_key="k", content=1, task="shop.tasks.price")
    assert row.p_created
