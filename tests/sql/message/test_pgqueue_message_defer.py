"""A message goes back into the queue, for later or after an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session

ERROR = {"class": "builtins.OSError", "message": "no network", "traceback": "Traceback …"}


def test_a_deferred_message_waits_again_without_a_lock(session: Session) -> None:
    session.set_clock(NOON)
    said = {"queue": "mail", "priority": 9, "headers": {"trace": 1}}
    message_id = session.create({"n": 1}, **said)
    held = session.take()

    assert session.value("pgqueue_message_defer", **token(held), dequeue_at=NOON + 5000) == "deferred"

    message = session.message(message_id)
    assert (message.dequeue_at, message.attempt) == (NOON + 5000, 1)
    assert (message.unlock_at, message.locked_at, message.worker) == (None, None, None)
    assert message.content == {"n": 1}
    assert {name: getattr(message, name) for name in said} == said
    assert session.dequeue() == []
    session.set_clock(NOON + 5000)
    assert session.take().attempt == 2


def test_without_a_time_it_is_ready_at_once_behind_waiting_messages(session: Session) -> None:
    session.set_clock(NOON)
    session.create("deferred", dequeue_at=NOON - 10)
    session.create("waiting", dequeue_at=NOON - 1)
    session.value("pgqueue_message_defer", **token(session.take()))
    assert [message.content for message in session.dequeue(2)] == ["waiting", "deferred"]


def test_the_history_has_the_deferred_attempt_without_content(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, dequeue_at=NOON - 7)
    held = session.take(worker="w1")
    session.value("pgqueue_message_defer", **token(held), dequeue_at=NOON + 1)
    [end] = session.history(message_id)
    assert (end.status, end.final, end.attempt, end.worker, end.content) == ("deferred", False, 1, "w1", None)
    assert end.dequeue_at == NOON - 7, "when this attempt was due, not the next one"


def test_state_is_kept_until_another_one_is_given(session: Session) -> None:
    message_id = session.create()
    for state, kept in (({"page": 1}, {"page": 1}), (None, {"page": 1}), ([], [])):
        session.value("pgqueue_message_defer", **token(session.take()), state=state)
        assert session.message(message_id).state == kept


def test_deferring_between_errors_keeps_count_of_the_errors(session: Session) -> None:
    session.create(max_attempts=3)
    answers = [
        session.value("pgqueue_message_defer", **token(session.take()), error=error)
        for error in (ERROR, None, ERROR, *[None] * 20, ERROR)
    ]
    assert answers == ["retried", "deferred", "retried", *["deferred"] * 20, "failed"]


@pytest.mark.parametrize(("max_attempts", "answers"), [(1, ["failed"]), (3, ["retried", "retried", "failed"])])
def test_an_error_is_a_retry_until_max_attempts_is_reached(
    session: Session, max_attempts: int, answers: list[str]
) -> None:
    message_id = session.create({"n": 1}, max_attempts=max_attempts)
    for answer in answers:
        assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == answer
    assert session.message(message_id) is None
    ends = session.history(message_id)
    assert [(end.status, end.final) for end in ends] == [(answer, answer == "failed") for answer in answers]
    assert [end.content for end in ends] == [None] * (len(answers) - 1) + [{"n": 1}]


def test_without_max_attempts_the_first_error_is_the_last(session: Session) -> None:
    session.create(max_attempts=None)
    assert session.value("pgqueue_message_defer", **token(session.take())) == "deferred"
    assert session.value("pgqueue_message_defer", **token(session.take()), error=ERROR) == "failed"


def test_the_history_has_the_error_and_the_queue_its_text(session: Session) -> None:
    message_id = session.create()
    session.value("pgqueue_message_defer", **token(session.take()), error=ERROR)
    [end] = session.history(message_id)
    assert {"class": end.error_class, "message": end.error_message, "traceback": end.traceback} == ERROR
    assert session.message(message_id).last_error == "no network"


@pytest.mark.parametrize(
    ("error", "shown"),
    [({"class": "builtins.KeyError"}, "builtins.KeyError"), ({"message": "late"}, "late"), ({}, "before")],
)
def test_an_error_may_lack_fields(session: Session, error: dict[str, str], shown: str) -> None:
    message_id = session.create()
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "before"})
    session.value("pgqueue_message_defer", **token(session.take()), error=error)
    assert session.message(message_id).last_error == shown
