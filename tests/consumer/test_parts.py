"""The parts of a turn: an error of one of them is logged once, and ends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.consumer import parts as module
from django_pgqueue.consumer.parts import NOT_DUE, Parts
from django_pgqueue.consumer.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    monkeypatch.setattr(module, "MIN_POSTPONE_SECONDS", 0.0)
    monkeypatch.setattr(module.Postponed, "__init__", _never_postponed)
    session = Session("default", consumer="w", pooled=False)
    session.open()
    with session.connection:
        yield Parts(session)


def _never_postponed(self: module.Postponed) -> None:
    self.until, self.seconds, self.problem, self.failures = 0.0, 0.0, None, 0


def fail() -> None:
    message = "nobody expects this"
    raise psycopg.errors.RaiseException(message)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "nobody expects this" in record.getMessage()]


def test_an_error_is_logged_once_however_often_the_part_is_not_due(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        parts.do("dependencies", fail)
        parts.do("dependencies", lambda: NOT_DUE)
    assert len(lines(caplog)) == 1
    assert parts.problems == ["dependencies: nobody expects this"]


def test_a_missing_right_is_logged_with_where_rights_come_from(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    def refused() -> None:
        message = "permission denied for function pgqueue_message_dequeue"
        raise psycopg.errors.InsufficientPrivilege(message)

    parts.do("claim", refused)
    [line] = caplog.messages
    assert line.endswith(
        " claim: permission denied for function pgqueue_message_dequeue (sql/roles.sql says which role may)"
    )
    assert parts.problems == ["claim: permission denied for function pgqueue_message_dequeue"]


def test_a_part_that_works_again_has_no_problem_and_its_next_error_is_logged(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    parts.do("dependencies", fail)
    parts.do("dependencies", lambda: None)
    assert parts.problems == []
    parts.do("dependencies", fail)
    assert len(lines(caplog)) == 2


def test_a_part_fails_again_after_three_errors_that_are_not_of_a_busy_moment(parts: Parts) -> None:
    def is_busy() -> None:
        raise psycopg.errors.LockNotAvailable

    for work in (is_busy, is_busy, is_busy, fail, is_busy, fail):
        parts.do("claim", work)
        assert not parts.fails_again("claim")
    parts.do("claim", fail)
    assert parts.fails_again("claim")
    parts.do("claim", lambda: None)
    assert not parts.fails_again("claim")


def test_a_process_that_leaves_tries_each_part_again_and_knows_what_has_failed(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        parts.do("claim", fail)
    parts._postponed["claim"].until = float("inf")
    tried: list[str] = []
    parts.do("claim", lambda: tried.append("postponed"))
    parts.leave_none_out()
    assert parts.fails_again("claim")
    parts.do("claim", lambda: tried.append("at once"))
    assert tried == ["at once"]
    assert len(lines(caplog)) == 1
