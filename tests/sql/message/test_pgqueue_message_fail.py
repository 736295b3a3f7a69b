"""A message is given up."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.sessions import Session

ERROR = {"class": "builtins.ValueError", "message": "no such order", "traceback": "Traceback …"}


@pytest.mark.parametrize("max_attempts", [1, 5, None])
def test_a_failed_message_leaves_the_queue_despite_remaining_attempts(
    session: Session, max_attempts: int | None
) -> None:
    message_id = session.create({"n": 1}, max_attempts=max_attempts)
    assert session.value("pgqueue_message_fail", **token(session.take(worker="w1")), error=ERROR) is True

    assert session.message(message_id) is None
    [end] = session.history(message_id)
    assert (end.status, end.final, end.content, end.worker) == ("failed", True, {"n": 1}, "w1")
    assert {"class": end.error_class, "message": end.error_message, "traceback": end.traceback} == ERROR


def test_a_message_may_fail_without_an_error(session: Session) -> None:
    session.create()
    assert session.value("pgqueue_message_fail", **token(session.take())) is True
    [end] = session.history()
    assert (end.status, end.error_class, end.error_message, end.traceback) == ("failed", None, None, None)


@pytest.mark.parametrize("end", ["fail", "defer"])
def test_start_and_end_of_the_attempt_may_be_given(session: Session, end: str) -> None:
    began, ended = dt.datetime(2024, 5, 1, tzinfo=dt.UTC), dt.datetime(2024, 5, 2, tzinfo=dt.UTC)
    session.create()
    session.value(f"pgqueue_message_{end}", **token(session.take()), started_at=began, finished_at=ended)
    assert [(one.started_at, one.finished_at) for one in session.history()] == [(began, ended)]
