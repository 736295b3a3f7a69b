"""Bulks of messages with unique keys stay out of each other's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.sql.conftest import Connect
    from tests.sql.sessions import Session


def lock(session: Session, task: str | None = "shop.tasks.price", *, alone: bool = False) -> bool:
    """Whether it is to be had at once."""
    session.rows("set local lock_timeout = '100ms'")
    session.rows("savepoint before")
    try:
        session.value("pgqueue_message_lock_keys", task=task, alone=alone)
    except psycopg.errors.LockNotAvailable:
        session.rows("rollback to before")
        return False
    return True


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("task", ["shop.tasks.price", None])
def test_who_wants_to_be_alone_is_alone_until_the_transaction_ends(
    connect: Connect, task: str | None, *, first: bool, second: bool
) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, task, alone=first)
    assert lock(other, task, alone=second) is not (first or second)
    one.commit()
    assert lock(other, task, alone=second)


def test_tasks_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert lock(one, alone=True)
    assert lock(other, "shop.tasks.send", alone=True)
    assert lock(other, None, alone=True)


def test_it_may_be_said_again(connect: Connect) -> None:
    session = connect(autocommit=False)
    for alone in (True, False, True):
        assert lock(session, alone=alone)


@pytest.mark.parametrize("key", ["k", None])
def test_many_wait_for_who_is_alone_if_they_have_keys(connect: Connect, key: str | None) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, "b", alone=True)
    other.rows("set lock_timeout = '100ms'")
    messages = [{"content": n, "task": task, "unique_key": key and f"{task}{n}"} for n, task in enumerate("ccbb")]
    if key is None:
        assert len(other.ids("pgqueue_message_create_many", messages=messages)) == 4
    else:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.ids("pgqueue_message_create_many", messages=messages)
        alone.rollback()
        assert len(other.ids("pgqueue_message_create_many", messages=messages)) == 4


def test_a_single_key_waits_for_nobody_who_is_alone(connect: Connect) -> None:
    alone, other = connect(autocommit=False), connect()
    assert lock(alone, alone=True)
    other.rows("set lock_timeout = '100ms'")
    [row] = other.call("pgqueue_message_create_unique", unique_key="k", content=1, task="shop.tasks.price")
    assert row.p_created
