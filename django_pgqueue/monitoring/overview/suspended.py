"""Durable tasks that are suspended, by what they wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext

from django_pgqueue.monitoring.overview.formatting import number
from django_pgqueue.monitoring.overview.queries import rows
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt

COUNTED = 10_000
KINDS = ("event", "decision", "time", "children")
SUSPENDED = """
select s.queue, s.kind, count(*)
from (
    select m.queue,
           case when m.after_ids is not null then 'children'
                when m.awaited_event is null then 'time'
                when starts_with(m.awaited_event, 'pgqueue:') then 'decision'
                else 'event' end as kind
    from pgqueue_message m
    where m.suspended_attempt is not null and m.suspended_attempt = m.attempt and m.unlock_at is null
      and m.dequeue_at > %(now)s
    limit %(counted)s
) as s
group by s.queue, s.kind
"""


@dataclass(frozen=True, slots=True)
class SuspendedTasks:
    queues: dict[str, dict[str, int]]
    """How many of each of ``KINDS``.  One that waits for an event until a time waits for the
    event."""
    is_capped: bool
    """Whether there are more than these."""

    @property
    def kinds(self) -> Counter[str]:
        """The counts of all queues together."""
        return sum((Counter(kinds) for kinds in self.queues.values()), Counter())

    def __str__(self) -> str:
        """
        >>> str(SuspendedTasks({"mail": {"time": 1, "event": 1200}, "default": {"time": 1}}, is_capped=False))
        '1\xa0200 for events, 2 for times'
        >>> str(SuspendedTasks({"mail": {"children": 1}}, is_capped=True))
        'more than 1 for children'
        """
        texts = {
            "event": gettext("{count} for events"),
            "decision": gettext("{count} for decisions"),
            "time": gettext("{count} for times"),
            "children": gettext("{count} for children"),
        }
        found = self.kinds
        text = ", ".join(words.format(count=number(found[kind])) for kind, words in texts.items() if found[kind])
        return gettext("more than {text}").format(text=text) if self.is_capped else text


def taken(now: dt.datetime, *, using: str) -> SuspendedTasks:
    found = rows(SUSPENDED, {"now": to_epoch_ms(now), "counted": COUNTED + 1}, using=using)
    queues: dict[str, dict[str, int]] = {}
    for queue, kind, count in sorted(found):
        queues.setdefault(queue, {})[kind] = count
    return SuspendedTasks(queues, is_capped=sum(count for _, _, count in found) > COUNTED)
