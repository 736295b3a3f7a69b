"""A consumer's session with the database."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue.consumer.session import Session

if TYPE_CHECKING:
    import pytest

REFUSED = 'connection failed: password authentication failed\npassword retrieved from file "/srv/pgpass"'


def test_an_error_of_the_connection_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    session = Session("default", consumer="me", pooled=False)
    info = SimpleNamespace(transaction_status=0)
    gone: Any = SimpleNamespace(broken=True, closed=True, close=lambda: None, info=info)
    session.connection = gone
    with caplog.at_level(logging.WARNING, logger="django_pgqueue"):
        session.failed(psycopg.OperationalError(REFUSED))
    [line] = caplog.messages
    assert line.startswith("database error worker=me ")
    assert line.endswith(": connection failed: password authentication failed")
