"""Workers ask whether quarantined messages are due, which must cost nothing where there are none.

When it says that there are, and that it says what pgqueue_quarantine_dequeue does, is in that function's tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.message.test_pgqueue_message_lose import quarantined
from tests.sql.message.test_pgqueue_quarantine_dequeue import take_alone, waits

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_it_returns_whether_a_dequeue_would_find_a_message(session: Session) -> None:
    assert not waits(session)
    quarantined(session)
    assert waits(session)
    assert waits(session), "asking takes nothing"
    take_alone(session)
    assert not waits(session)
