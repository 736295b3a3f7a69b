"""Runs SQL that the ORM cannot express.  Each query is a bounded number of index probes, however many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from django_pgqueue.monitoring.overview.limits import set_for

if TYPE_CHECKING:
    from collections.abc import Mapping

# A plan with a sort, a bitmap or a hash reads all matching rows before it returns the first one.
PINNED = dict.fromkeys(
    (
        "enable_sort",
        "enable_incremental_sort",
        "enable_bitmapscan",
        "enable_hashjoin",
        "enable_mergejoin",
        "enable_material",
    ),
    "off",
)


def rows(
    sql: str, parameters: Mapping[str, Any] | None = None, *, using: str, settings: Mapping[str, str] = PINNED
) -> list[tuple[Any, ...]]:
    with set_for(using, settings), connections[using].cursor() as cursor:
        cursor.execute(sql, parameters or {})
        return list(cursor.fetchall())
