"""The queue's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from django_pgqueue.functions.connection import Connection


def now(connection: Connection) -> dt.datetime:
    """Returns the time of the queue's clock."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_clock()")
        moment: dt.datetime = cursor.fetchone()[0]
        return moment
