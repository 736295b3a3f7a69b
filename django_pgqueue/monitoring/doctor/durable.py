"""Durable tasks that wait for what will not come, or whose code has changed under them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.models.tables import Message
from django_pgqueue.monitoring.doctor.finding import Kind, Severity
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.waiting import EventEmitted, reasons, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.finding import Finding
    from django_pgqueue.monitoring.doctor.subject import Subject

WAITED_FOR = dt.timedelta(days=1)
ASKED_WITHIN = dt.timedelta(days=7)
LOOKED_AT = 1_000
NAMED = 3

AWAITED_EVENT = Kind(
    "awaited-event",
    Severity.WARNING,
    "The name in the task or in the code that emits may be wrong, or nobody emits it yet. Emit it, cancel the jobs, or "
    "give wait_for_event a timeout.",
)
MISSED_EVENT = Kind(
    "missed-event",
    Severity.ERROR,
    "Run these jobs now (pgqueue_message_reschedule, or Run now in the admin): each looks for its event again. This is "
    "a bug of the queue, or rows were changed by hand: please report it.",
)
UNASKED_STEP = Kind(
    "unasked-step",
    Severity.WARNING,
    "A deploy has renamed or removed these steps under jobs that had done them: under another name, a step runs again. "
    "Keep the old name, or cancel the jobs. Code that chooses its steps by what may change outside of steps does this, "
    "too.",
)
# Those without a time-out: the others go on by themselves.  "paid:7" and "paid:8" are one name, as on the admin's page.
AWAITED = """
select w.name, count(*), min(w.since), min(w.id)
from (
    select m.id, split_part(m.awaited_event, ':', 1) as name,
           (select min(s.finished_at) from pgqueue_step s where s.message_id = m.id and s.status = 'waiting'
            and coalesce(s.result #>> '{}', s.name) = m.awaited_event) as since
    from pgqueue_message m
    where m.suspended_attempt is not null and m.suspended_attempt = m.attempt and m.unlock_at is null
      and m.awaited_event is not null and m.dequeue_at = 9223372036854775807
      and not starts_with(m.awaited_event, 'pgqueue:')
    limit %(looked_at)s
) as w
where isfinite(w.since)
group by w.name
having min(w.since) < pgqueue_clock() - %(waited_for)s
   and not exists (select from pgqueue_event e where e.name = w.name or starts_with(e.name, w.name || ':'))
order by min(w.since)
limit 10
"""
# The limit keeps the probes from becoming a join.  One that was emitted just now has its row in pgqueue_ended.
MISSED = """
select w.id, count(*) over ()
from (
    select m.id, m.awaited_event
    from pgqueue_message m
    where m.suspended_attempt is not null and m.suspended_attempt = m.attempt and m.unlock_at is null
      and m.parked_at is null and m.awaited_event is not null and m.dequeue_at > pgqueue_now()
    limit %(looked_at)s
) as w
cross join lateral (select from pgqueue_event e where e.name = w.awaited_event limit 1) as e
where not exists (select from pgqueue_ended n where n.event = w.awaited_event)
order by w.id
limit 1
"""
UNASKED = """
select s.name, count(*) over (), s.message_id, s.recorded_at
from pgqueue_step s
where s.status = 'unasked' and s.recorded_at > pgqueue_clock() - %(within)s
order by s.recorded_at desc
limit %(named)s
"""


def awaited_events(patient: Subject) -> Iterator[Finding]:
    now = patient.value("select pgqueue_clock()")
    for name, count, since, first in patient.rows(AWAITED, {"looked_at": LOOKED_AT, "waited_for": WAITED_FOR}):
        jobs = "1 job waits" if count == 1 else f"{count:,} jobs wait"
        yield AWAITED_EVENT.found(
            f"{jobs} without a time-out for the event {name!r} or {name + ':…'!r}, the first, {first}, for "
            f"{span(now - since)}. No event of such a name has been emitted, as far back as events are kept.",
            "select id, task, awaited_event from pgqueue_message where suspended_attempt is not null "
            "and awaited_event is not null order by id;",
            event=name,
            messages=count,
            first=first,
            wait_seconds=(now - since).total_seconds(),
        )


def missed_events(patient: Subject) -> Iterator[Finding]:
    for first, count in patient.rows(MISSED, {"looked_at": LOOKED_AT}):
        now = patient.value("select pgqueue_clock()")
        messages = list(Message.objects.using(patient.using).filter(pk=first))
        found = reasons(messages, now, Service([]), using=patient.using).get(first, [])
        why = [sentence(reason, now) for reason in found if isinstance(reason, EventEmitted)]
        jobs = "1 job waits" if count == 1 else f"{count:,} jobs wait"
        yield MISSED_EVENT.found(
            f"{jobs} for an event that has been emitted. The first, {first}: {' '.join(why)}",
            "select m.id, m.task, m.awaited_event from pgqueue_message m "
            "join pgqueue_event e on e.name = m.awaited_event "
            "where m.suspended_attempt is not null and m.unlock_at is null order by m.id;",
            messages=count,
            first=first,
        )


def unasked_steps(patient: Subject) -> Iterator[Finding]:
    found = patient.rows(UNASKED, {"within": ASKED_WITHIN, "named": NAMED})
    if not found:
        return
    total = found[0][1]
    named = ", ".join(f"{name!r} of message {message_id}" for name, _, message_id, _ in found)
    more = f" and {total - len(found):,} more" if total > len(found) else ""
    are = "1 step was" if total == 1 else f"{total:,} steps were"
    yield UNASKED_STEP.found(
        f"{are} done by an attempt, and not asked for by a later one, in the last {ASKED_WITHIN.days} days: "
        f"{named}{more}.",
        "select message_id, name, recorded_at from pgqueue_step where status = 'unasked' order by recorded_at desc;",
        steps=total,
        names=[name for name, *_ in found],
    )
