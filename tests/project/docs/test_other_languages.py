"""The workers of the page "Workers in other languages": the code that stands there, killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support import go, node
from tests.support.databases import empty_database, psql
from tests.support.pages import FOLDER, ROOT, blocks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.django_db]

PAGE = FOLDER / "guide" / "other-languages.md"


def code(language: str) -> str:
    [block] = [block for block in blocks(PAGE) if block.language == language]
    return block.text


@contextmanager
def worker(language: str, database: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the page's code until the end of the block, and kills it there."""
    program = folder / {"python": "worker.py", "javascript": "worker.js", "go": "worker.go"}[language]
    program.write_text(code(language))
    parts = conninfo_to_dict(database)
    address = (
        f"postgresql://{parts['user']}:{parts.get('password', '')}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    )
    if language == "go":
        command = [str(go.built(program)), f"{address}?sslmode=disable"]
    else:
        command = [sys.executable if language == "python" else str(node.NODE), str(program), address]
    process = subprocess.Popen(command, cwd=ROOT, env=node.environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize(
    ("first", "second"),
    [("python", "python"), ("python", "javascript"), ("javascript", "python"), ("python", "go"), ("go", "python")],
)
def test_a_worker_goes_on_where_another_one_was_killed(
    first: str, second: str, test_database: str, tmp_path: Path
) -> None:
    if "javascript" in (first, second) and (reason := node.reason_without_pg()):
        pytest.skip(reason)
    if "go" in (first, second) and (reason := go.reason_without_pq()):
        pytest.skip(reason)
    with empty_database(test_database, "languages") as database:
        psql(database, "--file", str(ROOT / "sql" / "install.sql")).check_returncode()
        with psycopg.connect(database, autocommit=True) as connection:
            create_table, *_ = (block.text for block in blocks(PAGE, "sql"))
            enqueue, emit, *_ = (line for line in blocks(PAGE, "sql")[-1].text.splitlines() if line)
            connection.execute(create_table.encode())

            def has(query: str) -> bool:
                return connection.execute(query.encode()).fetchone() is not None

            with worker(first, database, tmp_path):
                connection.execute(enqueue.encode())
                waits = "select from pgqueue_message where awaited_event = 'paid:7' and unlock_at is null"
                wait_until(lambda: has(waits), "the order waits for its payment", 90)
            assert connection.execute("select what from parcel").fetchall() == [("reserved",)]

            with worker(second, database, tmp_path):
                connection.execute(emit.encode())
                wait_until(lambda: has("select from pgqueue_attempt where final"), "the order has ended", 90)
            ended = connection.execute("select status, result from pgqueue_attempt order by id").fetchall()
            # On a machine that stands still for long, an attempt may lose its lock.
            assert [status for status, _ in ended if status != "lost"] == ["suspended", "suspended", "succeeded"]
            assert ended[-1][1] == {"charge": "ch_1"}
            assert connection.execute("select what from parcel").fetchall() == [("reserved",), ("sent",)]


@pytest.mark.parametrize("language", ["python", "javascript", "go"])
def test_a_message_that_nobody_can_work_on_stops_no_worker(language: str, test_database: str, tmp_path: Path) -> None:
    if language == "javascript" and (reason := node.reason_without_pg()):
        pytest.skip(reason)
    if language == "go" and (reason := go.reason_without_pq()):
        pytest.skip(reason)
    with empty_database(test_database, "poison") as database:
        psql(database, "--file", str(ROOT / "sql" / "install.sql")).check_returncode()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("create table parcel (order_id bigint, what text)")
            for order in ('"seven"', "8"):
                connection.execute(f"""select pgqueue_message_create('{{"order": {order}}}', 'parcels')""".encode())

            def last() -> str:
                rows = connection.execute("select status from pgqueue_attempt order by id").fetchall()
                return ", ".join(status for (status,) in rows[:2])

            with worker(language, database, tmp_path):
                wait_until(lambda: last() == "retried, suspended", "it has gone on with the next order", 90)


def test_an_error_of_any_text_is_recorded(test_database: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code("python").partition("with psycopg.connect(sys.argv")[0], str(PAGE), "exec"), names)  # noqa: S102
    with empty_database(test_database, "errors") as database:
        psql(database, "--file", str(ROOT / "sql" / "install.sql")).check_returncode()
        with psycopg.connect(database, autocommit=True, row_factory=names["namedtuple_row"]) as connection:
            for result, error in (({"charge": "\0"}, "\\u0000"), (ValueError("a\0b\ud800"), "a?b?")):

                def ship(*_: object, result: object = result) -> object:
                    if isinstance(result, Exception):
                        raise result
                    return result

                names["ship"] = ship
                connection.execute("""select pgqueue_message_create('{"order": 7}', 'parcels')""")
                message = connection.execute("select * from pgqueue_message_dequeue('{parcels}')").fetchone()
                names["work"](connection, message)
                ended = "select status, error_message from pgqueue_attempt order by id desc"
                status, text = connection.execute(ended).fetchall()[0]
                assert status == "retried"
                assert error in text


def test_an_effect_of_a_step_that_is_not_recorded_is_rolled_back(test_database: str) -> None:
    """Runs the page's Python without its loop: another worker has taken the message over meanwhile."""
    names: dict[str, Any] = {}
    exec(compile(code("python").partition("with psycopg.connect(sys.argv")[0], str(PAGE), "exec"), names)  # noqa: S102
    steps_of, suspended, row_factory = names["Steps"], names["Suspended"], names["namedtuple_row"]
    with empty_database(test_database, "late") as database:
        psql(database, "--file", str(ROOT / "sql" / "install.sql")).check_returncode()
        with psycopg.connect(database, autocommit=True, row_factory=row_factory) as connection:
            connection.execute("create table parcel (order_id bigint, what text)")
            connection.execute("""select pgqueue_message_create('{"order": 7}', 'parcels')""")
            message = connection.execute("select * from pgqueue_message_dequeue('{parcels}')").fetchone()
            steps = steps_of(connection, message)
            connection.execute("update pgqueue_message set attempt = attempt + 1")
            with pytest.raises(suspended):
                steps.step("reserve", "insert into parcel values (7, 'reserved')")
            assert connection.execute("select from parcel").fetchall() == []
