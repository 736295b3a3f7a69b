"""One row of history, for the functions that end attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session

APPEND = "select pgqueue_attempt_append(m, %s, %s) from pgqueue_message m where m.id = %s"


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
