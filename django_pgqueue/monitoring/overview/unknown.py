"""Tasks of parked messages that no worker has known yet."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections
from django.utils.translation import ngettext

from django_pgqueue import functions
from django_pgqueue.monitoring.overview.capped import Capped
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.overview.queries import rows
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from django_pgqueue.functions import ParkedLine

MAX_LINES, MAX_NEWEST, MAX_PARKED, MAX_REASON_CHARS = 1000, 10, 1000, 300
"""So many tasks of parked messages are read, and listed, and so many messages of each of these are counted."""
MAX_WAIT_MS = 10**14
"""A row that was written by hand may be unknown since long before the calendar begins."""
COUNTS = """
select l.queue, l.task, c.messages
from unnest(%(queues)s::text[], %(tasks)s::text[]) as l (queue, task)
cross join lateral (
    select count(*) as messages
    from (select from pgqueue_message m
          where m.parked_at is not null and m.task is not null and m.queue = l.queue and m.task = l.task
          order by m.queue, m.task, m.parked_at limit %(most)s) as f
) as c
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownTasks:
    newest: list[UnknownName]
    """Those that became unknown last come first: they stand for the deploy, or the typing error, of today."""
    more: Capped
    """So many others are not listed."""
    waits: dict[str, dt.timedelta]
    """For each queue: for how long its first message has been unknown, of any task."""

    @property
    def rest(self) -> str:
        """Says how many tasks are not listed; empty: all are."""
        if not self.more:
            return ""
        return ngettext(
            "{count} more task waits for a worker that knows it.",
            "{count} more tasks wait for a worker that knows them.",
            self.more.value,
        ).format(count=self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownName:
    """Messages that the workers that have claimed them do not know."""

    task: str
    queue: str
    count: Capped
    wait: dt.timedelta
    reason: str

    def __str__(self) -> str:
        words = ngettext(
            "{count} of {task} in the queue {queue} waits for a worker that knows the task, the first for "
            "{time}: {reason}",
            "{count} of {task} in the queue {queue} wait for a worker that knows the task, the first for "
            "{time}: {reason}",
            self.count.value,
        )
        return words.format(
            count=self.count, task=self.task, queue=self.queue, time=span(self.wait), reason=self.reason
        )


def tasks(now: dt.datetime, *, using: str) -> UnknownTasks:
    """Returns the tasks that have parked messages which no worker knew.  Those that are only left to workers of a later
    version wait as others do.
    """
    lines = functions.message_parked(connections[using], limit=MAX_LINES)
    unknown = [line for line in lines if line.unknown_since is not None]
    newest = sorted(unknown, key=lambda line: line.unknown_since or 0, reverse=True)[:MAX_NEWEST]
    messages = _counted(newest, using=using)
    waits: dict[str, dt.timedelta] = {}
    for line in unknown:
        waits[line.queue] = max(_wait(line, now), waits.get(line.queue, dt.timedelta()))
    return UnknownTasks(
        newest=[
            UnknownName(
                task=line.task,
                queue=line.queue,
                count=Capped.of(messages[line.queue, line.task], MAX_PARKED),
                wait=_wait(line, now),
                reason=(line.reason or "")[:MAX_REASON_CHARS],
            )
            for line in newest
        ],
        more=Capped(len(unknown) - len(newest), len(lines) == MAX_LINES),
        waits=waits,
    )


def _counted(lines: list[ParkedLine], *, using: str) -> dict[tuple[str, str], int]:
    asked = {
        "queues": [line.queue for line in lines],
        "tasks": [line.task for line in lines],
        "most": MAX_PARKED + 1,
    }
    return {(queue, task): messages for queue, task, messages in rows(COUNTS, asked, using=using)} if lines else {}


def _wait(line: ParkedLine, now: dt.datetime) -> dt.timedelta:
    return dt.timedelta(milliseconds=min(MAX_WAIT_MS, max(0, to_epoch_ms(now) - (line.unknown_since or 0))))
