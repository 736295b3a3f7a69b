"""Code that is newer than the queue in the database says what to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import ProgrammingError, connection, transaction

from django_pgqueue import functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.installed import Installed, version_in
from tests.support import tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

pytestmark = pytest.mark.django_db

REMEDY = r"Run manage\.py migrate django_pgqueue --database default or, without Django, psql -f sql/upgrade\.sql"


def change(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize(
    ("lacks", "do"),
    [
        (
            "alter function pgqueue_message_create rename to pgqueue_of_another_release",
            lambda _: tasks.do_nothing.enqueue(),
        ),
        ("drop function pgqueue_message_create_many", lambda _: enqueue_many(tasks.do_nothing, [()])),
        ("alter table pgqueue_message rename column state to note", lambda result: result.refresh()),
        ("alter table pgqueue_attempt rename column error_class to note", lambda result: result.refresh()),
    ],
    ids=["enqueue", "many at once", "result", "result of the history"],
)
def test_a_web_process_on_an_older_queue_enqueues_nothing_and_names_the_remedy(
    lacks: str, do: Callable[[Any], object]
) -> None:
    result = tasks.do_nothing.enqueue()
    with transaction.atomic():
        if "_many" in lacks:
            lacks = ";".join(f"{drop}" for drop in drops("pgqueue_message_create_many"))
        change(lacks)
        with pytest.raises(OutdatedQueue, match=REMEDY) as raised, transaction.atomic():
            do(result)
        assert "and nothing was done" in str(raised.value)
        transaction.set_rollback(True)


def drops(name: str) -> list[str]:
    return [line.rstrip(";") for line in sql_files.current("uninstall").splitlines() if f" {name}(" in line]


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(ProgrammingError, match="syntax"), functions.explained("default"), transaction.atomic():
        change("selekt")
    with pytest.raises(ZeroDivisionError), functions.explained("default"):
        _ = 1 / 0


def test_a_queue_without_a_version_is_that_of_the_first_release() -> None:
    with transaction.atomic():
        change("drop function pgqueue_version()")
        found = functions.installed_queue(connection)
        assert found == Installed(schema="public", version=sql_files.FIRST)
        with pytest.raises(OutdatedQueue, match=f"has the queue of 0\\.1\\.0, and this code needs.*{REMEDY}"):
            functions.require_queue(connection, "default")
        transaction.set_rollback(True)
    functions.require_queue(connection, "default")


@pytest.mark.parametrize(("version", "is_outdated"), [("0.0.9", True), ("99.0.0", False)])
def test_a_newer_queue_is_accepted(version: str, is_outdated: bool) -> None:
    with transaction.atomic():
        change(sql_files.current("pgqueue_version").replace(functions.needed(), version))
        found = functions.installed_queue(connection)
        assert found is not None
        assert (found.version, found.is_outdated) == (version, is_outdated)
        transaction.set_rollback(True)


def test_a_missing_queue_is_no_error() -> None:
    with transaction.atomic():
        change("set local search_path = pg_catalog")
        assert functions.installed_queue(connection) is None
        functions.require_queue(connection, "default")
        transaction.set_rollback(True)


def test_a_text_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="returns no version"):
        version_in("select 'soon'")
