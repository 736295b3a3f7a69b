"""Errors, as consumers say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.sessions import Session

DEEP = "[" * 100_000
SAID = [
    ("no network", "no network"),
    ('"the printer is out"', "the printer is out"),
    ('{"message": "no"}', "no"),
    ("", ""),
    ("null", "null"),
    ("7", "7"),
    ('["a"]', '["a"]'),
    ('["message"]', '["message"]'),
    ('{"code": 5}', '{"code": 5}'),
    ('{"message": "unfinished', '{"message": "unfinished'),
    ('"\\u0000"', '"\\u0000"'),
    (DEEP, DEEP),
    ("1e400000", "1e400000"),
    ("é 🍵\n\x1b", "é 🍵\n\x1b"),
]


@pytest.mark.parametrize(("said", "message"), SAID, ids=range(len(SAID)))
def test_every_text_is_a_reason_that_is_kept(session: Session, said: str, message: str) -> None:
    for end, found in (("fail", True), ("cancel", True), ("defer", "failed")):
        session.create(max_attempts=1)
        held = session.take()
        assert session.value(f"pgqueue_message_{end}", **token(held), error=said) == found
        assert session.history(held.id)[0].error_message == message
    session.create()
    held = session.take()
    assert session.value("pgqueue_message_defer", **token(held), error=said) == "retried"
    assert session.message(held.id).last_error == message


@pytest.mark.parametrize(
    "said", [{"class": "a.B"}, {"class": "a.B", "message": "no", "traceback": "line 1"}, {"traceback": "line 1"}, {}]
)
def test_an_object_is_taken_as_it_is(session: Session, said: dict[str, Any]) -> None:
    session.create()
    held = session.take()
    assert session.value("pgqueue_message_fail", **token(held), error=said) is True
    row = session.history(held.id)[0]
    assert (row.error_class, row.error_message, row.traceback) == (
        said.get("class"),
        said.get("message"),
        said.get("traceback"),
    )


def test_null_is_no_error(session: Session) -> None:
    assert session.one("select pgqueue_attempt_error(null)") is None
