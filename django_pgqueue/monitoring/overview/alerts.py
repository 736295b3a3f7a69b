"""Problems that an overview shows first, the worst at the top: one line for each kind."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.utils import timezone

from django_pgqueue.monitoring.overview.figure import Figure
from django_pgqueue.monitoring.overview.formatting import number, rate, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django_pgqueue.monitoring.overview.overview import Overview, QueueOverview

NAMED = 3
"""So many queues or workers of a line have their names in it."""
MAX_NAME = 60
BEHIND = dt.timedelta(minutes=5)
MAX_BACKLOGS = MAX_FAILING = MAX_PINNED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    kind: str
    text: str
    page: str | None = None
    """The list or page of the admin that leads on: message, attempt, worker, queue.  None: a command does."""
    key: str | None = None
    """One row of that list; None: the list."""
    filters: Mapping[str, str] = field(default_factory=dict)
    paused_queue: str | None = None
    """The queue that a button resumes."""


def of(whole: Overview) -> list[Alert]:
    """Returns the alerts of an overview: first where jobs do not run or fail, then what costs speed or space."""
    return [
        *_without_worker(whole),
        *_expired(whole),
        *_failing(whole),
        *_behind(whole),
        *_unknown(whole),
        *_silent(whole),
        *_paused(whole),
        *_pinned(whole),
        *_bloated(whole),
    ]


def named(names: Sequence[str]) -> str:
    """
    >>> named(["a"]), named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    names = [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 3]}..." for name in names]
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def total(figures: Iterable[Figure]) -> Figure:
    figures = list(figures)
    return Figure(sum(one.value for one in figures), all(one.is_exact for one in figures))


def _are(figure: Figure, what: str) -> str:
    return f"1 message {what.replace('are', 'is', 1)}" if str(figure) == "1" else f"{figure} messages {what}"


def _worst_first(queues: Iterable[QueueOverview]) -> list[QueueOverview]:
    return sorted(queues, key=lambda one: (-one.count.ready.value, one.name))


def _without_worker(whole: Overview) -> Iterator[Alert]:
    queues = _worst_first(one for one in whole.queues if one.has_no_worker and not one.paused)
    if not queues:
        return
    ready = _are(total(one.count.ready for one in queues), "are ready")
    names = named([one.name for one in queues])
    if len(queues) == 1:
        text = f"No worker serves the queue {names}: {ready}."
        filters = {"status": "ready", "queue": queues[0].name}
    else:
        text, filters = f"{number(len(queues))} queues have no worker, {names}: {ready}.", {"status": "ready"}
    yield Alert(kind="no-worker", text=text, page="message", filters=filters)


def _expired(whole: Overview) -> Iterator[Alert]:
    queues = [one for one in whole.queues if one.count.expired and not one.paused]
    if queues:
        expired = total(one.count.expired for one in queues)
        have = "message of 1 worker that died waits" if str(expired) == "1" else "messages of workers that died wait"
        text = f"{expired} {have} to be taken over, in {named([one.name for one in queues])}."
        yield Alert(kind="expired", text=text, page="message", filters={"status": "expired"})


def _failing(whole: Overview) -> Iterator[Alert]:
    for one in whole.failing[:MAX_FAILING]:
        usual = (
            "and nothing had failed the day before" if one.times is None else f"{one.times:.0f} times the usual number"
        )
        failures = f"{number(one.failures)} attempts of {named([one.queue])}"
        since = f"{timezone.localtime(one.since):%H:%M}"
        yield Alert(
            kind="failing",
            text=f"{failures} failed in 15 minutes, {usual}, since {since}.",
            page="attempt",
            filters={"queue": one.queue, "status__exact": "failed"},
        )
    if len(whole.failing) > MAX_FAILING:
        more = len(whole.failing) - MAX_FAILING
        yield Alert(kind="failing", text=f"{more} more queues fail more than usual.", page="attempt")


def _behind(whole: Overview) -> Iterator[Alert]:
    late = [
        one for one in _worst_first(whole.queues)
        if one.count.ready and one.count.oldest is not None and one.count.oldest >= BEHIND
        and not one.paused and not one.has_no_worker and one.count.tasks_are_ready
    ]  # fmt: skip
    for one in late[:MAX_BACKLOGS]:
        wait = "waits" if str(one.count.ready) == "1" else "wait"
        text = f"{one.count.ready} {wait} in {named([one.name])}, the first for {span(one.count.oldest)}"
        pace = one.pulse.a_minute if one.pulse else 0.0
        if pace:
            needed = dt.timedelta(minutes=min(one.count.ready.value / pace, 1e6))
            text += f"; {rate(pace)} end a minute, so the last would wait {span(needed)} more"
        else:
            text += "; none has ended in the last ten minutes"
        yield Alert(kind="behind", text=f"{text}.", page="message", filters={"status": "ready", "queue": one.name})
    if others := late[MAX_BACKLOGS:]:
        ready = _are(total(one.count.ready for one in others), "are ready")
        text = f"{len(others)} more {'queue is' if len(others) == 1 else 'queues are'} behind: {ready}."
        yield Alert(kind="behind", text=text, page="message", filters={"status": "ready"})


def _unknown(whole: Overview) -> Iterator[Alert]:
    for one in whole.unknown.newest:
        yield Alert(kind="unknown", text=str(one), page="message", filters={"task": one.task})
    if whole.unknown.rest:
        yield Alert(kind="unknown", text=whole.unknown.rest)


def _silent(whole: Overview) -> Iterator[Alert]:
    silent = whole.workers.silent
    if len(silent) == 1:
        text = f"Worker {silent[0].id} has not renewed its row for {span(silent[0].silence)}: it died, or cannot reach "
        yield Alert(kind="silent", text=f"{text}the database.", page="worker", key=silent[0].id)
    elif silent:
        names = named([f"{one.id} ({span(one.silence)})" for one in silent])
        text = f"{number(len(silent))} workers have not renewed their rows: {names}. They died, or cannot reach the "
        yield Alert(kind="silent", text=f"{text}database.", page="worker")


def _paused(whole: Overview) -> Iterator[Alert]:
    queues = _worst_first(one for one in whole.queues if one.paused and one.count.ready)
    if not queues:
        return
    ready = _are(total(one.count.ready for one in queues), "are ready")
    names = named([one.name for one in queues])
    if len(queues) == 1 and (paused := queues[0].paused) is not None:
        text = f"The queue {names} has been paused for {span(max(dt.timedelta(), whole.at - paused.since))}"
        text += f" by {paused.by or 'somebody'}: {ready}."
        yield Alert(kind="paused", text=text, page="queue", key=queues[0].name, paused_queue=queues[0].name)
    else:
        text = f"{number(len(queues))} queues are paused, {names}: {ready}."
        yield Alert(kind="paused", text=text, page="queue")


def _pinned(whole: Overview) -> Iterator[Alert]:
    for one in whole.pinned[:MAX_PINNED]:
        text = f"The transaction of {one.who} ({one.application}, user {one.user}) has been open for {span(one.age)}: "
        yield Alert(kind="pinned", text=f"{text}until it ends, rows of ended messages cannot be cleaned up.")
    if more := whole.pinned[MAX_PINNED:]:
        have = "transaction has" if len(more) == 1 else "transactions have"
        yield Alert(kind="pinned", text=f"{len(more)} more {have} been open for long.")


def _bloated(whole: Overview) -> Iterator[Alert]:
    if len(whole.bloated) == 1:
        yield Alert(kind="bloated", text=f"{whole.bloated[0]} See manage.py qdoctor.")
    elif whole.bloated:
        first = str(max(whole.bloated, key=lambda one: one.bytes)).removesuffix(".")
        more = len(whole.bloated) - 1
        what = "table or index is" if more == 1 else "tables and indexes are"
        yield Alert(
            kind="bloated",
            text=f"{first}, and {more} more {what} too large. See manage.py qdoctor.",
        )
