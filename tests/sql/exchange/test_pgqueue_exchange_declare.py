"""An exchange is made once, by whoever comes first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import concurrently

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_it_returns_whether_the_exchange_is_new(session: Session) -> None:
    assert session.value("pgqueue_exchange_declare", name="orders") is True
    assert session.value("pgqueue_exchange_declare", name="orders") is False
    assert session.rows("select name, declared from pgqueue_exchange") == [("orders", False)]


def test_a_declared_exchange_stays_declared(session: Session) -> None:
    session.value("pgqueue_exchange_declare", name="orders")
    session.value("pgqueue_exchange_declare", name="orders", declared=True)
    session.value("pgqueue_exchange_declare", name="orders")
    assert session.one("select declared from pgqueue_exchange") is True


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_has_1_to_255_bytes(session: Session, name: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        session.value("pgqueue_exchange_declare", name=name)


def test_concurrent_declarations_make_one_exchange(connect: Connect) -> None:
    sessions = [connect() for _ in range(4)]
    answers = concurrently([partial(each.value, "pgqueue_exchange_declare", name="orders") for each in sessions])
    assert sorted(answers) == [False, False, False, True]
