"""The lakes that the history is exported to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.connection import may_read

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.functions.connection import Connection


class LakeRow(NamedTuple):
    """How far a lake has come, and what retention has dropped before it came there."""

    id: str
    location: str
    position: int
    missed_attempts: int
    exported_at: dt.datetime | None
    missed_at: dt.datetime | None
    missed_from: dt.date | None
    missed_until: dt.date | None
    lag_seconds: float | None
    """Time since the last export.  None: none has ended yet."""


LAKES = """
select l.id, l.location, l.position, l.missed_attempts, l.exported_at, l.missed_at, l.missed_from, l.missed_until,
       extract(epoch from pgqueue_clock() - l.exported_at)::double precision
from pgqueue_lake l order by l.id
"""


def lakes(connection: Connection) -> list[LakeRow]:
    """Returns the lakes; none where the queue is of a release without them, or this login may not read them."""
    if not may_read(connection, "pgqueue_lake"):
        return []
    with connection.cursor() as cursor:
        cursor.execute(LAKES)
        return [LakeRow(*row) for row in cursor.fetchall()]
