"""The SQL in databases that somebody else has set up: with settings of their own, and in another encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.functions import sql_files
from django_pgqueue.values.error import Error
from tests.support.databases import FOREIGN_SETTINGS, empty_database, migrate, psql, session_in
from tests.support.sessions import NOON, end_one, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

FOREIGN = {**FOREIGN_SETTINGS, "datestyle": "SQL, YMD", "quote_all_identifiers": "on"}
"""No session can write a date as SQL, YMD and read it again."""
DAY_MS = 86_400_000
TRACEBACK = 'Traceback:\n  File "C:\\shop\\mail.py", line 7, in send\n    1 / 0\n'


def answers(session: Session) -> list[Any]:
    found = [
        session.one(
            "select pgqueue_attempt_error_group('a.B', %s, %s)", [f"no printer '{name}' at 0x7f at 10", traceback]
        )
        for name, traceback in (("one", None), ("two", None), ("one", TRACEBACK))
    ]
    for kind, pattern in (("topic", "a_b.*.c-d.#"), ("regex", r"^a\.(b|c){2,3}\d+$")):
        found.append(session.rows("select * from pgqueue_binding_compile(%s, %s)", [kind, pattern]))
    return [*found, session.one("select pgqueue_attempt_fingerprint((now() at time zone 'UTC')::date)")]


def test_the_settings_of_a_database_change_no_answer(conninfo: str, connect: Connect) -> None:
    """In sessions that begin with them: a session reads a function once."""
    session = connect()
    end_one(session)
    expected = answers(session)
    assert expected[0] == expected[1] != expected[2]
    with session_in(conninfo) as other:
        change(other)
        assert answers(other) == expected
        with pytest.raises(psycopg.Error, match="back-reference"):
            other.rows("select pgqueue_binding_compile('regex', %s)", [r"(a)\1"])


def test_the_settings_of_a_database_keep_no_history(session: Session) -> None:
    """Partitions are made and dropped: a date that could not be read, or a pattern without its backslash, kept all."""
    change(session)
    for name in ("attempt", "step"):
        session.rows(f"select pgqueue_{name}_partition('2023-11-14')")
        session.set_clock(NOON + 3 * DAY_MS)
        maintain = f"pgqueue_{name}_maintain"
        while session.value(maintain, days_ahead=0, days_kept=1):
            pass
        assert session.one(f"select to_regclass('pgqueue_{name}_20231114')") is None


def change(session: Session) -> None:
    for name, value in FOREIGN.items():
        session.rows("select set_config(%s, %s, false)", [name, value])


WORDS = 'No "☕" for é: C:\\u00e9, \\ ü'


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_queue_in_another_encoding_keeps_the_errors_of_its_jobs(conninfo: str, encoding: str) -> None:
    """An error may have characters that the database cannot store."""
    with empty_database(conninfo, "other", encoding=encoding) as database:
        migrate(database)
        with session_in(make_conninfo(database, client_encoding="UTF8")) as session:
            session.create("é" if encoding == "LATIN1" else "e", max_attempts=1)
            held = session.take()
            error = Error(error_class="shop.Out", message=WORDS, traceback="Traceback")
            assert session.value("pgqueue_message_defer", **token(held), error=error.as_json()) == "failed"
            [row] = session.history(held.id)
            assert (row.error_class, row.traceback) == ("shop.Out", "Traceback")
            assert row.error_message == WORDS.replace("☕", "?").replace(" é", " ?").replace("ü", "?")
        migrate(database, back=True)


def test_psql_makes_a_queue_in_another_encoding_from_a_terminal_with_utf8(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "UTF8")
    with empty_database(conninfo, "other", encoding="LATIN1") as database:
        done = psql(database, "-v", "ON_ERROR_STOP=1", "-f", str(sql_files.folder() / "install.sql"))
        assert done.returncode == 0, done.stderr
