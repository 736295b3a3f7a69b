"""Empties the test database between tests that commit, quickly.

Django truncates all tables, here with some forty partitions, and makes all permissions anew: 0.2 s for each such test.
Most of them have written to three tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.management.commands import flush
from django.db.backends.postgresql.operations import DatabaseOperations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEPT = frozenset({"auth_permission", "django_content_type"})
"""Tables that migrate has filled, and no test writes to."""
IS_WRITTEN = "select '{0}' where exists (select from {0})"
PARTITIONS = "(select distinct tableoid::regclass::text from pgqueue_attempt)"


def sql_flush(
    self: DatabaseOperations,
    style: Any,
    tables: Sequence[str],
    **_: object,
) -> list[str]:
    """As Django's, for the tables that hold anything.  Those of the queue are truncated: what they are like matters to
    tests of plans and of dead rows.
    """
    if not tables:
        return []
    looks = [PARTITIONS if table == "pgqueue_attempt" else IS_WRITTEN.format(table) for table in tables]
    with self.connection.cursor() as cursor:
        cursor.execute(" union all ".join(looks))
        written = {name for (name,) in cursor.fetchall()} - KEPT
    queue = sorted(name for name in written if name.startswith("pgqueue_"))
    deletes = [f"delete from {name}" for name in sorted(written.difference(queue))]
    return [*deletes, *([f"truncate {', '.join(queue)} cascade"] if queue else [])]


@pytest.fixture(scope="session", autouse=True)
def emptied_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield
