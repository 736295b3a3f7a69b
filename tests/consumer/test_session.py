"""A consumer's session with the database."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue.consumer.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def defaults(transactional_db: None) -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"alter role current_user in database {here()} reset statement_timeout")


def here() -> str:
    return str(connection.ops.quote_name(connection.settings_dict["NAME"]))


def test_a_server_whose_timeouts_were_changed_is_no_other_server(defaults: None) -> None:
    """The worker would take another name, and what it held would run again."""
    session = Session("default", consumer="me", pooled=False, statement_ms=60_000, renamed=lambda: "other")
    session.open().close()
    with connection.cursor() as cursor:
        cursor.execute(f"alter role current_user in database {here()} set statement_timeout = '50s'")
    with session.open() as opened:
        assert opened.execute("show statement_timeout").fetchone() == ("50s",)
    assert session.consumer == "me"


@pytest.mark.django_db(transaction=True)
def test_sessions_of_a_pooler_with_other_timeouts_are_of_one_server() -> None:
    """Those from before and from after an ``alter role … set statement_timeout``."""
    session = Session("default", consumer="me", pooled=True, statement_ms=60_000)
    with session.open() as opened:
        opened.execute("set statement_timeout = '50s'")  # as another session of the server
        with session.transaction():
            assert opened.execute("show statement_timeout").fetchone() == ("50s",)
