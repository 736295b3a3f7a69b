"""The row of a lake in PostgreSQL, which says how far it has come: retention waits for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from django_pgqueue.spark import database
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.options import PipelineOptions

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from django_pgqueue.spark.lake import Lake
    from django_pgqueue.spark.progress import Progress

MOVE = "select missed_attempts, missed_from, missed_until from pgqueue_lake_move(%s, %s, %s, %s)"
FORGET = "select pgqueue_lake_forget(%s)"
QUIET_SECONDS = 60.0
"""How often a lake is recorded as complete when nothing was added."""


class Missed(NamedTuple):
    """All that retention has dropped before the lake had it."""

    attempts: int = 0
    since: dt.date | None = None
    until: dt.date | None = None


class KnownPosition:
    """Records the position.  A login without the right to do so may export, and is told so once; the next commit tries
    again, as a follow may run for months.
    """

    def __init__(self, lake: Lake, options: Mapping[str, str], progress: Progress) -> None:
        self.lake = lake
        self.options = PipelineOptions.of(options)
        self.progress = progress
        self.is_told = False
        self.moved_at = 0.0

    def begin(self, position: int) -> Missed:
        return self._move(position, is_done=False)

    def move(self, position: int) -> Missed:
        """Call it after the lake has committed: the row may be behind the lake, and never ahead of it."""
        self.moved_at = time.monotonic()
        return self._move(position, is_done=True)

    def stay(self, position: int) -> None:
        """Records now and then that there was nothing to add."""
        if time.monotonic() - self.moved_at > QUIET_SECONDS:
            self.move(position)

    def _move(self, position: int, *, is_done: bool) -> Missed:
        values = (self.lake.version().lake_id, self.lake.root, position, is_done)
        try:
            with database.connect(database.writing(self.options)) as connection:
                row = connection.execute(MOVE, values).fetchone()
        except (SparkQueueError, psycopg.Error) as error:
            if not self.is_told:
                self.is_told = True
                self.progress.say(
                    "PostgreSQL cannot record how far this lake has come, so retention does not wait for it: "
                    f"{str(error).strip().splitlines()[0]}"
                )
            return Missed()
        self.is_told = False
        return Missed(*row) if row else Missed()


def forget(lake: str, options: Mapping[str, str] | None = None) -> int:
    """Forgets the lakes with this location or id: retention does not wait for them.  Returns how many there were."""
    with database.connect(database.writing(PipelineOptions.of(options or {}))) as connection:
        row = connection.execute(FORGET, [lake]).fetchone()
    return int(row[0]) if row else 0
