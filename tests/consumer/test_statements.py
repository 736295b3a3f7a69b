"""The statements that a job waits for: psycopg's values and errors, without its cursors."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue import functions
from django_pgqueue.consumer.connection import connect
from django_pgqueue.consumer.session import PooledStatements, Session
from django_pgqueue.consumer.statements import Statements, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db(transaction=True)
NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


@pytest.fixture
def connection() -> Iterator[psycopg.Connection[Any]]:
    with connect("default") as connection:
        yield connection


@pytest.fixture
def statements(connection: psycopg.Connection[Any]) -> Statements:
    return Statements(connection)


def fetched(statements: Statements, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with statements.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", 1),
        ("integer", None),
        ("bigint", 2**40),
        ("text", 'it\'s 100 % "text" — ☃'),
        ("text", None),
        ("boolean", True),
        ("double precision", 0.1),
        ("timestamptz", NOW),
        ("text[]", ["a", "b,c", 'd"']),
        ("text[]", []),
        ("integer[]", [1, 2, 70000]),
        ("bigint[]", [2**40, -(2**62)]),
    ],
)
def test_values_are_sent_and_returned_unchanged(statements: Statements, kind: str, value: Any) -> None:
    assert fetched(statements, f"select %s::{kind}", value) == [(value,)]


def test_one_statement_takes_numbers_of_every_size(statements: Statements) -> None:
    numbers = [1, 2**20, 2**40, -1, 1]
    assert [fetched(statements, "select %s", number) for number in numbers] == [[(number,)] for number in numbers]


def test_a_statement_is_prepared_once(statements: Statements, connection: psycopg.Connection[Any]) -> None:
    for number in range(5):
        assert fetched(statements, "select %s::bigint + 1", number) == [(number + 1,)]
    prepared = "select count(*) from pg_prepared_statements where statement like 'select $1::bigint + 1'"
    assert connection.execute(prepared).fetchone() == (1,)


def test_no_rows_and_nothing_to_fetch(statements: Statements) -> None:
    assert fetched(statements, "select 1 where false") == []
    with statements.cursor() as cursor:
        cursor.execute("select 1 where false")
        assert cursor.fetchone() is None
        cursor.execute("set application_name = 'me'")
        assert cursor.fetchall() == []


def test_a_double_percent_is_a_percent() -> None:
    assert numbered("select %s, '%%s', %s, 5 %% 2, %s") == "select $1, '%s', $2, 5 % 2, $3"


def test_without_parameters_a_percent_is_a_percent(statements: Statements) -> None:
    assert fetched(statements, "select 'all' like 'a%', 7 % 4") == [(True, 3)]
    assert fetched(statements, "select 'all' like 'a%%', 7 %% %s::integer", 4) == [(True, 3)]


def test_an_error_of_the_statement_is_psycopgs_and_the_next_one_runs(statements: Statements) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        fetched(statements, "select 1 / %s::integer", 0)
    with pytest.raises(psycopg.errors.UndefinedTable):
        fetched(statements, "select * from nowhere where id = %s", 1)
    assert fetched(statements, "select 1 / %s::integer", 1) == [(1,)]


def test_something_else_is_done_while_postgresql_works(
    statements: Statements, connection: psycopg.Connection[Any]
) -> None:
    found: list[psycopg.pq.TransactionStatus] = []
    statements.meanwhile = lambda: found.append(connection.info.transaction_status)
    assert fetched(statements, "select 1 from pg_sleep(0.05)") == [(1,)]
    assert fetched(statements, "select 2") == [(2,)]
    assert found == [psycopg.pq.TransactionStatus.ACTIVE], "once, and before the answer was read"


def test_an_error_of_something_else_leaves_no_answer_behind(statements: Statements) -> None:
    statements.meanwhile = lambda: int("one")
    with pytest.raises(ValueError, match="one"):
        fetched(statements, "select 1")
    assert fetched(statements, "select 2") == [(2,)]


def test_something_else_is_not_done_for_a_later_statement(statements: Statements) -> None:
    found: list[int] = []
    statements.meanwhile = lambda: found.append(1)
    with pytest.raises(psycopg.ProgrammingError):
        fetched(statements, "select %s", object())
    assert fetched(statements, "select 2") == [(2,)]
    assert found == []


def test_a_lost_connection_is_an_error(statements: Statements, connection: psycopg.Connection[Any]) -> None:
    with connect("default") as other:
        other.execute("select pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        fetched(statements, "select 1")
    assert connection.broken
    with pytest.raises(psycopg.OperationalError):
        fetched(statements, "select 1")


def test_a_notification_that_arrives_with_a_result_is_received() -> None:
    heard: list[bool] = []
    session = Session("default", consumer="me", pooled=False, notified=heard.append)
    session.open()
    with session.connection:
        assert isinstance(session.statements, Statements)
        with session.statements.cursor() as cursor:
            cursor.execute("select pg_notify('pgqueue_me', %s)", ("default",))
            cursor.execute("select pg_notify('pgqueue_me', %s)", ("default\n",))
        session.take_notifications()
        assert heard == [False, True], "the second one is from a consumer that has no room any more"


def test_behind_a_pooler_nothing_is_prepared() -> None:
    session = Session("default", consumer="me", pooled=True, notified=lambda _: None)
    session.open()
    with session.connection:
        assert isinstance(session.statements, PooledStatements)
        for _ in range(7):
            functions.message_dequeue(session.statements, worker="me", tasks=True)
        assert session.connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_statements_are_part_of_the_open_transaction(
    statements: Statements, connection: psycopg.Connection[Any]
) -> None:
    with connection.transaction(force_rollback=True):
        functions.enqueue(
            statements, functions.NewMessage(content='{"args": [], "kwargs": {}}', task="tests.support.site.tasks.noop")
        )
        [claimed] = functions.message_dequeue(statements, worker="me", tasks=True)
        assert claimed.worker == "me"
    for _ in range(3):  # and what was prepared in it is there still
        assert functions.message_dequeue(statements, worker="me", tasks=True) == []


def test_prepared_statements_survive_the_cleanup_of_psycopg_after_a_rollback() -> None:
    session = Session("default", consumer="me", pooled=False, notified=lambda _: None)
    with session.open() as connection:
        for _ in range(2):
            assert functions.message_dequeue(session.statements, worker="me", tasks=True) == []
            with connection.transaction(force_rollback=True):
                connection.execute("select 1")
            connection.execute("select 1")


def test_the_number_of_written_rows_is_returned(statements: Statements) -> None:
    with statements.cursor() as cursor:
        cursor.execute("create temporary table few as select n from generate_series(1, %s) as n", (3,))
        cursor.execute("update few set n = n + 1 where n > %s", (1,))
        assert cursor.rowcount == 2


FAILS_AT_ITS_END = (
    "create function pg_temp.refuse() returns trigger language plpgsql as $$begin raise exception 'not so'; end$$",
    "create temp table late (number integer)",
    (
        "create constraint trigger refuse after insert on late deferrable initially deferred "
        "for each row execute function pg_temp.refuse()"
    ),
)


def test_an_error_after_the_rows_of_a_result_is_raised(
    connection: psycopg.Connection[Any], statements: Statements
) -> None:
    """The end of a transaction may fail, or be cut short, after its statement has answered: two results, rows first."""
    for sql in FAILS_AT_ITS_END:
        connection.execute(sql)
    for _ in range(2):
        with pytest.raises(psycopg.errors.RaiseException, match="not so"):
            fetched(statements, "insert into late values (%s) returning number", 1)
    assert fetched(statements, "select count(*) from late") == [(0,)]
