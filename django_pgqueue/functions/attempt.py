"""The history of attempts that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.functions.connection import answered_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.functions.connection import Connection


def attempt_enqueue(connection: Connection, attempt_ids: Iterable[int], *, version: str | None = None) -> list[int]:
    """Enqueues finished messages again and returns the ids of the new messages.  ``version``: that of this deploy."""
    return sorted(
        answered_ids(connection, "select pgqueue_attempt_enqueue(%s::bigint[], %s)", (sorted(attempt_ids), version))
    )


# The partitions that pgqueue_attempt_maintain would drop.
OLD_DAYS = """
    pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass('pgqueue_attempt') and c.relname ~ '^pgqueue_attempt_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD')
          < (pgqueue_clock() at time zone 'UTC')::date - cast(%(days_kept)s as integer)
"""

# The number of partitions that pgqueue_attempt_maintain would make or drop.  The query reads the catalog only.
OVERDUE = f"""
select (
    select count(*) from generate_series(0, 7) as n
    where to_regclass('pgqueue_attempt_' || to_char((pgqueue_clock() at time zone 'UTC')::date + n, 'YYYYMMDD')) is null
) + (
    select count(*) from {OLD_DAYS}
)
"""  # noqa: S608 - a constant


LAKE_DAYS = 7
"""The default of pgqueue_attempt_maintain."""


def attempt_maintain(connection: Connection, *, days_kept: int | None, lake_days: int = LAKE_DAYS) -> int:
    """Makes and drops partitions of the history and returns their number."""
    given = {"p_days_kept": days_kept}
    if lake_days != LAKE_DAYS:  # the function of 0.1.0 knows no lakes
        given["p_lake_days"] = lake_days
    marks = ", ".join(f"{name} => %s" for name in given)
    with connection.cursor() as cursor:
        cursor.execute(f"select pgqueue_attempt_maintain({marks})", list(given.values()))
        return int(cursor.fetchone()[0])


def attempt_overdue(connection: Connection, *, days_kept: int | None) -> int:
    """Returns the number of partitions that should have been made or dropped and were not."""
    with connection.cursor() as cursor:
        cursor.execute(OVERDUE, {"days_kept": days_kept})
        return int(cursor.fetchone()[0])
