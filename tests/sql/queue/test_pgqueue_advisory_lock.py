"""Advisory locks: of this queue alone, and waited for with an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.words import behind

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect


def test_a_session_holds_the_lock_until_its_transaction_ends(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    assert one.value("pgqueue_advisory_lock", what="x") is True
    assert one.value("pgqueue_advisory_lock", what="x") is True, "once more is no wait"
    assert other.value("pgqueue_advisory_lock", what="x") is False
    assert other.value("pgqueue_advisory_lock", what="y") is True
    one.rollback()
    assert other.value("pgqueue_advisory_lock", what="x") is True


def test_several_sessions_share_the_lock(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    assert one.value("pgqueue_advisory_lock", what="x", shared=True) is True
    assert other.value("pgqueue_advisory_lock", what="x", shared=True) is True
    assert other.value("pgqueue_advisory_lock", what="x") is False


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("setting", "wait_ms"), [("lock_timeout = 0", 20), ("statement_timeout = '2s'", 2**31 - 1)])
def test_the_wait_for_the_lock_is_bounded(connect: Connect, setting: str, wait_ms: int, *, shared: bool) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    one.call("pgqueue_advisory_lock", what="x")
    other.rows(f"set local {setting}")
    assert other.value("pgqueue_advisory_lock", what="x", shared=shared, wait_ms=wait_ms) is False
    assert other.one("show lock_timeout") == "0"
    other.create("the transaction goes on")


def test_a_waiting_session_gets_the_lock_when_it_is_free(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    one.call("pgqueue_advisory_lock", what="x")

    assert behind(one, other, lambda: other.value("pgqueue_advisory_lock", what="x", wait_ms=30_000)) is True
    assert other.one("show lock_timeout") == "0"
