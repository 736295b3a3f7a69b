"""Problems that an overview shows first, the worst at the top: one line for each kind."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.utils.translation import gettext, ngettext

from django_pgqueue.monitoring.overview.capped import Capped
from django_pgqueue.monitoring.overview.failing_schedules import FAILURES
from django_pgqueue.monitoring.overview.figure import Figure
from django_pgqueue.monitoring.overview.formatting import change, number, rate, span
from django_pgqueue.values.sizes import size
from django_pgqueue.values.times import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django_pgqueue.monitoring.overview.overview import Overview, QueueOverview
    from django_pgqueue.worker.upkeep.bloat import Bloated

NAMED = 3
"""So many queues or workers of a line have their names in it."""
MAX_NAME = 60
BEHIND = dt.timedelta(minutes=5)
STEADY = 1.0
"""A backlog that changes by less a minute is told without its trend."""
MAX_BACKLOGS = MAX_FAILING = MAX_PINNED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    kind: str
    text: str
    page: str | None = None
    """The list or page of the admin that leads on: message, attempt, worker, queue, schedule.  None: a command does."""
    key: str | None = None
    """One row of that list; None: the list."""
    filters: Mapping[str, str] = field(default_factory=dict)
    paused_queue: str | None = None
    """The queue that a button resumes."""


def of(whole: Overview) -> list[Alert]:
    """Returns the alerts of an overview: first where jobs do not run or fail, then what costs speed or space."""
    return [
        *_filling(whole),
        *_without_worker(whole),
        *_expired(whole),
        *_quarantined(whole),
        *_failing(whole),
        *_failing_schedules(whole),
        *_overdue(whole),
        *_behind(whole),
        *_unknown(whole),
        *_silent(whole),
        *_paused(whole),
        *_pinned(whole),
        *_bloated(whole),
        *_skewed(whole),
    ]


def named(names: Sequence[str], *, more: bool = False) -> str:
    """
    >>> named(["a"]), named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    names = [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 3]}..." for name in names]
    if len(names) > NAMED:
        others = Capped(len(names) - NAMED, more)
        return gettext("{names} and {more} more").format(names=", ".join(names[:NAMED]), more=others)
    if len(names) == 1:
        return names[0]
    return gettext("{names} and {last}").format(names=", ".join(names[:-1]), last=names[-1])


def total(figures: Iterable[Figure]) -> Figure:
    """
    >>> total([Figure(7_001), Figure(8)]), total([Figure(7_001), Figure(800, is_exact=False)])
    (Figure(value=7009, is_exact=True), Figure(value=7800, is_exact=False))
    """
    figures = list(figures)
    value = sum(one.value for one in figures)
    if all(one.is_exact for one in figures):
        return Figure(value)
    return Figure.about(value, at_least=sum(one.value for one in figures if one.is_exact))


def _ready(queues: Iterable[QueueOverview], *, more: bool) -> str:
    """``more``: other queues may have more of them."""
    figure = total(one.count.ready for one in queues)
    words = ngettext("{count} message is ready", "{count} messages are ready", 2 if more else figure.plural)
    return words.format(count=f"{figure}+" if more else figure)


def _worst_first(queues: Iterable[QueueOverview]) -> list[QueueOverview]:
    return sorted(queues, key=lambda one: (-one.count.ready.value, one.name))


def _without_worker(whole: Overview) -> Iterator[Alert]:
    queues = _worst_first(one for one in whole.queues if one.has_no_worker and not one.paused)
    if not queues:
        return
    more = whole.more_queues and len(queues) > 1
    ready = _ready(queues, more=more)
    names = named([one.name for one in queues], more=more)
    if len(queues) == 1:
        text = gettext("No worker serves the queue {queue}: {ready}.").format(queue=names, ready=ready)
        filters = {"status": "ready", "queue": queues[0].name}
    else:
        text, filters = gettext("{count} queues have no worker, {names}: {ready}."), {"status": "ready"}
        text = text.format(count=Capped(len(queues), more), names=names, ready=ready)
    yield Alert(kind="no-worker", text=text, page="message", filters=filters)


def _expired(whole: Overview) -> Iterator[Alert]:
    queues = [one for one in whole.queues if one.count.expired and not one.paused]
    if queues:
        expired = total(one.count.expired for one in queues)
        words = ngettext(
            "{count} message of 1 worker that died waits to be taken over, in {names}.",
            "{count} messages of workers that died wait to be taken over, in {names}.",
            expired.plural,
        )
        text = words.format(count=expired, names=named([one.name for one in queues]))
        yield Alert(kind="expired", text=text, page="message", filters={"status": "expired"})


def _filling(whole: Overview) -> Iterator[Alert]:
    for one in whole.disks:
        text = gettext(
            "The disk of {place} is {used} full: {free} of {total} are free. PostgreSQL stops when it is full."
        )
        text = text.format(place=one.place, used=f"{one.used:.0%}", free=size(one.free), total=size(one.total))
        yield Alert(kind="filling", text=text)


def _quarantined(whole: Overview) -> Iterator[Alert]:
    for one in whole.quarantined:
        words = (
            ngettext(
                "{count} job of {task} is quarantined: its worker died while it ran. A worker runs it alone.",
                "{count} jobs of {task} are quarantined: their worker died while they ran. A worker runs each of them "
                "alone.",
                one.jobs,
            )
            if one.lost == 1
            else ngettext(
                "{count} job of {task} is quarantined: its workers died while it ran, {times} times. A worker runs it "
                "alone.",
                "{count} jobs of {task} are quarantined: their workers died while they ran, up to {times} times. A "
                "worker runs each of them alone.",
                one.jobs,
            )
        )
        text = words.format(count=number(one.jobs), task=named([one.task]), times=number(one.lost))
        yield Alert(kind="quarantined", text=text, page="message", filters={"task": one.task})


def _failing(whole: Overview) -> Iterator[Alert]:
    for one in whole.failing[:MAX_FAILING]:
        words = (
            gettext(
                "{count} attempts of {queue} failed in 15 minutes, and nothing had failed the day before, "
                "since {since}."
            )
            if one.times is None
            else gettext(
                "{count} attempts of {queue} failed in 15 minutes, {times} times the usual number, since {since}."
            )
        )
        yield Alert(
            kind="failing",
            text=words.format(
                count=number(one.failures),
                queue=named([one.queue]),
                times=f"{one.times or 0:.0f}",
                since=f"{local(one.since):%H:%M}",
            ),
            page="attempt",
            filters={"queue": one.queue, "status__exact": "failed"},
        )
    if len(whole.failing) > MAX_FAILING:
        more = len(whole.failing) - MAX_FAILING
        text = ngettext("{count} more queue fails more than usual.", "{count} more queues fail more than usual.", more)
        yield Alert(kind="failing", text=text.format(count=more), page="attempt")


def _failing_schedules(whole: Overview) -> Iterator[Alert]:
    shown = whole.failing_schedules[:MAX_FAILING]
    for one in shown:
        text = gettext("The last {count} jobs of the schedule {name} ({task}) have failed.")
        text = text.format(count=FAILURES, name=named([one.name]), task=named([one.task]))
        yield Alert(kind="failing-schedule", text=text, page="schedule", key=one.name)
    if more := len(whole.failing_schedules) - len(shown):
        text = ngettext(
            "The last jobs of {count} more schedule have failed.",
            "The last jobs of {count} more schedules have failed.",
            more,
        )
        yield Alert(kind="failing-schedule", text=text.format(count=number(more)), page="schedule")


def _overdue(whole: Overview) -> Iterator[Alert]:
    if whole.overdue is not None:
        words = ngettext(
            "{count} check is due of messages that wait for others, the first for {time}, and no worker does it.",
            "{count} checks are due of messages that wait for others, the first for {time}, and no worker does them.",
            whole.overdue.checks,
        )
        text = words.format(count=number(whole.overdue.checks), time=span(whole.overdue.since))
        yield Alert(kind="overdue", text=text, page="worker")


def _behind(whole: Overview) -> Iterator[Alert]:
    late = [
        one for one in _worst_first(whole.queues)
        if one.count.ready and one.count.oldest is not None and one.count.oldest >= BEHIND
        and not one.paused and not one.has_no_worker and one.count.tasks_are_ready
    ]  # fmt: skip
    for one in late[:MAX_BACKLOGS]:
        number_of = one.count.ready.plural
        if one.growth is None or abs(one.growth) < STEADY:
            words = ngettext(
                "{count} waits in {queue}, the first for {time}; {pace}.",
                "{count} wait in {queue}, the first for {time}; {pace}.",
                number_of,
            )
        else:
            words = ngettext(
                "{count} waits in {queue}, {growth} a minute, the first for {time}; {pace}.",
                "{count} wait in {queue}, {growth} a minute, the first for {time}; {pace}.",
                number_of,
            )
        pace = gettext("none has ended in the last ten minutes")
        a_minute = one.pulse.a_minute if one.pulse else 0.0
        if a_minute:
            needed = dt.timedelta(minutes=min(one.count.ready.value / a_minute, 1e6))
            pace = gettext("{rate} end a minute, so the last would wait {time} more")
            pace = pace.format(rate=rate(a_minute), time=span(needed))
        text = words.format(
            count=one.count.ready,
            queue=named([one.name]),
            growth=change(one.growth or 0),
            time=span(one.count.oldest),
            pace=pace,
        )
        yield Alert(kind="behind", text=text, page="message", filters={"status": "ready", "queue": one.name})
    if others := late[MAX_BACKLOGS:]:
        more, ready = Capped(len(others), whole.more_queues), _ready(others, more=whole.more_queues)
        text = ngettext(
            "{count} more queue is behind: {ready}.", "{count} more queues are behind: {ready}.", more.plural
        ).format(count=more, ready=ready)
        yield Alert(kind="behind", text=text, page="message", filters={"status": "ready"})


def _unknown(whole: Overview) -> Iterator[Alert]:
    for one in whole.unknown.newest:
        yield Alert(kind="unknown", text=str(one), page="message", filters={"task": one.task})
    if whole.unknown.rest:
        yield Alert(kind="unknown", text=whole.unknown.rest)


def _silent(whole: Overview) -> Iterator[Alert]:
    silent = whole.workers.silent
    if len(silent) == 1:
        text = gettext("Worker {id} has not renewed its row for {time}: it died, or cannot reach the database.")
        text = text.format(id=silent[0].id, time=span(silent[0].silence))
        yield Alert(kind="silent", text=text, page="worker", key=silent[0].id)
    elif silent:
        more = whole.workers.more
        names = named([f"{one.id} ({span(one.silence)})" for one in silent], more=more)
        text = gettext("{count} workers have not renewed their rows: {names}. They died, or cannot reach the database.")
        yield Alert(kind="silent", text=text.format(count=Capped(len(silent), more), names=names), page="worker")


def _paused(whole: Overview) -> Iterator[Alert]:
    queues = _worst_first(one for one in whole.queues if one.paused and one.count.ready)
    if not queues:
        return
    more = whole.more_queues and all(one.paused or one.count.expired.value for one in whole.queues)
    ready = _ready(queues, more=more)
    names = named([one.name for one in queues], more=more)
    if len(queues) == 1 and (paused := queues[0].paused) is not None:
        text = gettext("The queue {queue} has been paused for {time} by {who}: {ready}.").format(
            queue=names,
            time=span(max(dt.timedelta(), whole.at - paused.since)),
            who=paused.by or gettext("somebody"),
            ready=ready,
        )
        yield Alert(kind="paused", text=text, page="queue", key=queues[0].name, paused_queue=queues[0].name)
    else:
        text = gettext("{count} queues are paused, {names}: {ready}.")
        text = text.format(count=Capped(len(queues), more), names=names, ready=ready)
        yield Alert(kind="paused", text=text, page="queue")


def _pinned(whole: Overview) -> Iterator[Alert]:
    for one in whole.pinned[:MAX_PINNED]:
        text = gettext(
            "The transaction of {session} ({application}, user {user}) has been open for {time}: until it ends, rows "
            "of ended messages cannot be cleaned up."
        )
        text = text.format(session=one.who, application=one.application, user=one.user, time=span(one.age))
        yield Alert(kind="pinned", text=text)
    if more := whole.pinned[MAX_PINNED:]:
        text = ngettext(
            "{count} more transaction has been open for long.",
            "{count} more transactions have been open for long.",
            len(more),
        )
        yield Alert(kind="pinned", text=text.format(count=len(more)))


def _bloated(whole: Overview) -> Iterator[Alert]:
    if len(whole.bloated) == 1:
        yield Alert(kind="bloated", text=gettext("{what} See manage.py qdoctor.").format(what=_size(whole.bloated[0])))
    elif whole.bloated:
        first = _size(max(whole.bloated, key=lambda one: one.bytes)).removesuffix(".")
        more = len(whole.bloated) - 1
        text = ngettext(
            "{what}, and {count} more table or index is too large. See manage.py qdoctor.",
            "{what}, and {count} more tables and indexes are too large. See manage.py qdoctor.",
            more,
        )
        yield Alert(kind="bloated", text=text.format(what=first, count=more))


def _size(one: Bloated) -> str:
    if one.kind == "dead-rows":
        words = gettext("{table} has {dead} dead rows and {live} live ones, in {size}.")
    else:
        words = gettext("{table} takes {size} for {live} live rows.")
    return words.format(table=one.name, dead=number(one.dead), live=number(one.live), size=size(one.bytes))


def _skewed(whole: Overview) -> Iterator[Alert]:
    if whole.clock_ahead is not None:
        words = (
            gettext("The clock of this host is {time} ahead of that of the server: times that it computes are wrong.")
            if whole.clock_ahead > dt.timedelta()
            else gettext(
                "The clock of this host is {time} behind that of the server: times that it computes are wrong."
            )
        )
        yield Alert(kind="skewed", text=words.format(time=span(abs(whole.clock_ahead))))
