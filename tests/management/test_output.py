"""What every command prints when its reader leaves, or its database does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, OperationalError, connection, connections
from psycopg import errors

from tests.support.address import url
from tests.support.fixtures.admin import sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SHOP = "example_project.shop.tasks.send_receipt"
ASKING = [
    ("qstatus", "--once"),
    ("qworkers",),
    ("qworkers", "--pause", "one"),
    ("qenqueue", SHOP, "--args", "[1]"),
    ("qedit", "--cancel"),
    ("qbind", "--check"),
    ("qimport", "--from", "tasks-db"),
]

pytestmark = pytest.mark.once


def run(*arguments: str, stdout: int = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATABASE_URL": url(), "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=ROOT, env={**environment, **variables}, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip


CODES: list[tuple[tuple[str, ...], int]] = [
    (("qdoctor", "--fail-level", "info"), 1),
    (("qdoctor", "--json", "--fail-level", "never"), 0),
    (("qdoctor", "--setup"), 1),
    (("qworkers",), 0),
    (("qedit", "--cancel"), 0),
    (("qbind", "--dry-run"), 0),
    (("qbind", "--check"), 1),
    (("qworker", "--dry-run"), 0),
    (("qenqueue", SHOP, "--args", "[1]"), 0),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(("arguments", "code"), CODES)
def test_a_reader_that_leaves_changes_neither_the_work_nor_the_exit_code(
    arguments: tuple[str, ...], code: int, buffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = run(*arguments, stdout=writer, PYTHONUNBUFFERED=buffered)
    finally:
        os.close(writer)
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr
    assert "BrokenPipe" not in found.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("arguments", "code"), [*CODES, (("qstatus",), 0), (("qstatus", "--json"), 0)])
def test_a_standard_output_that_is_closed_changes_neither_the_work_nor_the_exit_code(
    arguments: tuple[str, ...], code: int
) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "django", *arguments]
    environment = {**os.environ, "DATABASE_URL": url(), "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    found = subprocess.run(closed, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.django_db(transaction=True)
def test_a_terminal_without_a_letter_shows_its_number() -> None:
    sign_in("aufträge")
    assert "auftr\\xe4ge" in run("qworkers", PYTHONIOENCODING="ascii").stdout


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_a_database_that_cannot_be_reached_is_named(arguments: tuple[str, ...]) -> None:
    found = run(*arguments, DATABASE_URL="postgres://nobody@127.0.0.1:1/shop")
    assert found.returncode == 1
    assert found.stderr.startswith("CommandError: The database 'default' cannot be reached: connection")
    assert found.stderr.rstrip().endswith("\nStart the server, or correct DATABASES.")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("arguments", [*ASKING, ("qworker", "--dry-run"), ("qdoctor",)], ids=" ".join)
def test_a_role_that_cannot_be_assumed_is_named(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    options = {**connection.settings_dict["OPTIONS"], "assume_role": "nobody_here"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    with pytest.raises(CommandError, match='cannot be reached: role "nobody_here" does not exist'):
        call_command(*arguments)


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [*ASKING, ("qworker", "--dry-run"), ("qdoctor",)], ids=" ".join)
def test_a_query_that_is_cancelled_is_no_traceback(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(execute: Callable[..., object], *given: object) -> object:
        raise OperationalError("canceling statement") from errors.QueryCanceled("canceling statement")

    monkeypatch.setattr(connections["default"], "close", lambda: None)  # the test's own transaction
    with connection.execute_wrapper(cancel), pytest.raises(CommandError, match=r"broke off|was cancelled"):
        call_command(*arguments)


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [*ASKING, ("qworker", "--dry-run")], ids=" ".join)
def test_a_session_that_a_timeout_ended_is_no_traceback(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To psycopg and Django that is an internal error."""

    def end(execute: Callable[..., object], *given: object) -> object:
        raise InternalError("terminating connection") from errors.IdleInTransactionSessionTimeout("terminating")

    monkeypatch.setattr(connections["default"], "close", lambda: None)  # the test's own transaction
    with connection.execute_wrapper(end), pytest.raises(CommandError, match="broke off"):
        call_command(*arguments)


@pytest.mark.django_db
def test_a_command_that_writes_on_a_standby_names_the_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "close", lambda: None)  # the test's own transaction
    with connection.cursor() as cursor:
        cursor.execute("set transaction read only")
    with pytest.raises(CommandError, match=r"read-only transaction\. Name the primary in DATABASES"):
        call_command("qenqueue", SHOP, "--args", "[1]")


@pytest.mark.django_db
def test_a_task_is_not_enqueued_where_the_queue_is_missing_or_closed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("create schema elsewhere")
        cursor.execute("set local search_path to elsewhere")
        with pytest.raises(CommandError, match="lacks what this code needs"):
            call_command("qenqueue", SHOP, "--args", "[1]")
