"""The actions of the message list, and their reports to the user."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.utils.translation import gettext, gettext_lazy, ngettext

from django_pgqueue import functions
from django_pgqueue.admin.parts import audit_log
from django_pgqueue.admin.parts.display import number
from django_pgqueue.admin.parts.paginator import CappedPaginator
from django_pgqueue.admin.parts.read_only import is_id
from django_pgqueue.admin.parts.status import Status, status_of
from django_pgqueue.models.tables import Message
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable

    from django.contrib.admin import ModelAdmin
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.utils.functional import Promise

MOST = CappedPaginator.CAP
"""An action takes as many rows as a list shows.  For more rows, the user repeats it."""
BATCH = 1_000
NAMED = 10
"""A report names at most this many rows."""

GONE = gettext_lazy("no longer in the queue")
REASONS = {
    Status.SCHEDULED: gettext_lazy("changed in the meantime"),
    Status.READY: gettext_lazy("already ready"),
    Status.RUNNING: gettext_lazy("running"),
    Status.EXPIRED: gettext_lazy("waiting for another worker, because its worker is gone"),
}
AWAITS = gettext_lazy("waiting for others, and not for a time")
PARKED = gettext_lazy("waiting for a worker that knows it, and not for a time")
QUARANTINED = gettext_lazy("quarantined and due: a worker takes it when it runs nothing else")


class Chosen(NamedTuple):
    """The rows of an action: those that still exist, and those that are gone."""

    ids: list[int]
    gone: list[int]


def chosen(model_admin: ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]) -> Chosen:
    """Returns the rows that the user selected, or all that the list finds, up to as many as it shows.

    A selected row may have changed and not match the list's filters any more: the user still means it.
    """
    if request.POST.get("select_across") == "1":
        return Chosen(list(queryset.values_list("pk", flat=True)[:MOST]), [])
    selected = [int(pk) for pk in request.POST.getlist(ACTION_CHECKBOX_NAME) if is_id(pk)][:MOST]
    there = model_admin.get_queryset(request).filter(pk__in=selected).values_list("pk", flat=True)
    ids = list(there)
    return Chosen(ids, sorted(set(selected) - set(ids)))


def done_since_shown(request: HttpRequest, model: type[Model]) -> set[str]:
    """Returns the keys of the rows that somebody has acted on since the page was shown whose form this is.

    A double click sends a form twice where no script holds it up, and two people may look at the same failed jobs.  The
    second request waits here for the first one.
    """
    seen = request.POST.get("seen", "")
    if not is_id(seen):
        return set()
    log = audit_log.log_database()
    kind = ContentType.objects.get_for_model(model)
    # Not as strong as a lock that waits for every transaction that writes to the log.
    no_key = connections[log].features.has_select_for_no_key_update
    ContentType.objects.using(log).select_for_update(no_key=no_key).filter(pk=kind.pk).first()
    since = LogEntry.objects.using(log).filter(content_type_id=kind.pk, pk__gt=int(seen))
    return {str(key) for key in since.values_list("object_id", flat=True)}


def not_twice(rows: str) -> str:
    text = gettext(
        "Not done once more: since the page was shown, you or somebody else has acted on {rows}. Do it again if you "
        "mean it."
    )
    return text.format(rows=rows)


class Outcome:
    """The ids that were changed, and the reasons why others were not."""

    def __init__(self, chosen: Chosen) -> None:
        self.done: list[int] = []
        self.asked: list[int] = []
        """Running messages that were asked to stop."""
        self.awaiting: list[int] = []
        """Messages that wait for others, and were left out for that."""
        self.passed: dict[str | Promise, list[int]] = defaultdict(list)
        if chosen.gone:
            self.passed[GONE] += chosen.gone

    def tell(self, model_admin: ModelAdmin[Any], request: HttpRequest, text: str) -> None:
        """Reports the outcome to the user, and writes it to Django's admin log."""
        for ids, what in ((self.done, text), (self.asked, gettext("asked to stop"))):
            if ids:
                model_admin.message_user(request, f"{count(ids)} {what}.", messages.SUCCESS)
                audit_log.written(request, model_admin.model, ids, f"{what[0].upper()}{what[1:]}.")
        if self.awaiting:
            model_admin.message_user(request, left_out(self.awaiting), messages.WARNING)
        if self.passed:
            reasons = "; ".join(f"{number(len(ids))} {reason} ({listed(ids)})" for reason, ids in self.passed.items())
            text = gettext("Not changed: {reasons}.").format(reasons=reasons)
            model_admin.message_user(request, text, messages.WARNING)
        others = len(self.asked) + len(self.awaiting) + sum(map(len, self.passed.values()))
        if len(self.done) + others >= MOST:
            model_admin.message_user(request, only_first(), messages.WARNING)


def run_now(chosen: Chosen, now: dt.datetime, *, using: str, break_dependencies: bool = False) -> Outcome:
    """Makes scheduled messages ready.  Ready messages keep their place, in front of later ones.

    Messages that wait for others are left out, unless ``break_dependencies``.
    """

    def refuse(one: Standing) -> str | Promise | None:
        if one.awaits and not break_dependencies:
            return AWAITS
        if one.status is Status.SCHEDULED and one.is_quarantined and one.due_ms <= to_epoch_ms(now):
            return QUARANTINED
        return None if one.status is Status.SCHEDULED else REASONS[one.status]

    outcome = _each(
        chosen,
        now,
        using=using,
        refuse=refuse,
        change=lambda batch: functions.message_reschedule(
            connections[using], batch, break_dependencies=break_dependencies
        ),
    )
    outcome.awaiting = outcome.passed.pop(AWAITS, [])
    return outcome


def postpone(chosen: Chosen, delay: dt.timedelta, now: dt.datetime, *, using: str) -> Outcome:
    """Postpones messages by ``delay`` from now, unless they wait for longer anyway, or for something else."""
    until_ms = to_epoch_ms(now + delay)

    def refuse(one: Standing) -> str | Promise | None:
        if one.status in {Status.RUNNING, Status.EXPIRED}:
            return REASONS[one.status]
        if one.awaits or one.is_parked:
            return AWAITS if one.awaits else PARKED
        return gettext("scheduled for later than that") if one.due_ms >= until_ms else None

    delay_ms = until_ms - to_epoch_ms(now)
    return _each(
        chosen,
        now,
        using=using,
        refuse=refuse,
        change=lambda batch: functions.message_reschedule(connections[using], batch, delay_ms=delay_ms),
    )


def cancel(chosen: Chosen, now: dt.datetime, *, using: str) -> Outcome:
    """Cancels messages that wait, and asks those that run to stop."""
    outcome = _each(
        chosen,
        now,
        using=using,
        refuse=lambda one: REASONS[one.status] if one.status is Status.RUNNING else None,
        change=lambda batch: functions.message_cancel(connections[using], batch),
    )
    for batch in batches(outcome.passed.pop(REASONS[Status.RUNNING], [])):
        asked = functions.message_request_cancel(connections[using], batch)
        outcome.asked += sorted(asked)
        for pk in sorted(set(batch) - asked):
            outcome.passed[gettext("ended, or given back, at this moment")].append(pk)
    return outcome


def _each(
    chosen: Chosen,
    now: dt.datetime,
    *,
    using: str,
    refuse: Callable[[Standing], str | Promise | None],
    change: Callable[[list[int]], set[int]],
) -> Outcome:
    """Works in batches: reads the statuses, changes the messages that allow it, and finds a reason for the others."""
    outcome = Outcome(chosen)
    for batch in batches(chosen.ids):
        standing = _standing(batch, now, using=using)
        refused = {pk: GONE if pk not in standing else refuse(standing[pk]) for pk in batch}
        done = change([pk for pk, reason in refused.items() if reason is None])
        outcome.done += done
        # A worker may have taken a message between the query and the change.
        taken = _standing([pk for pk in batch if refused[pk] is None and pk not in done], now, using=using)
        for pk in batch:
            if pk not in done:
                reason = refused[pk] or (REASONS[taken[pk].status] if pk in taken else GONE)
                outcome.passed[reason].append(pk)
    return outcome


class Standing(NamedTuple):
    """How a message stands at one moment."""

    status: Status
    due_ms: int
    """Epoch ms; of a quarantined message: when a worker may take it alone."""
    awaits: bool
    """It waits for other messages."""
    is_parked: bool
    is_quarantined: bool

    @classmethod
    def of(cls, message: Message, now: dt.datetime) -> Standing:
        return cls(
            status_of(message.dequeue_at, message.unlock_at, now),
            to_epoch_ms(message.dequeue_at if message.alone_at is None else message.alone_at),
            message.after_policy is not None,
            message.parked_at is not None,
            message.alone_at is not None and message.parked_at is None,
        )


STANDING = ("dequeue_at", "unlock_at", "alone_at", "parked_at", "after_policy")


def _standing(ids: list[int], now: dt.datetime, *, using: str) -> dict[int, Standing]:
    rows = Message.objects.using(using).filter(pk__in=ids).only("pk", *STANDING) if ids else ()
    return {message.pk: Standing.of(message, now) for message in rows}


def batches(ids: list[int]) -> Iterable[list[int]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))


def count(ids: list[int]) -> str:
    return ngettext("{count} message", "{count} messages", len(ids)).format(count=number(len(ids)))


def only_first() -> str:
    return gettext("The action took only the first {count} rows.").format(count=number(MOST))


def left_out(ids: list[int]) -> str:
    """Returns the sentence about messages that wait for others, which only their own page runs."""
    return ngettext(
        "{count} waits for others and was left out ({ids}). Open it to run it all the same.",
        "{count} wait for others and were left out ({ids}). Open one to run it all the same.",
        len(ids),
    ).format(count=number(len(ids)), ids=listed(ids))


def listed(ids: list[int]) -> str:
    shown = ", ".join(map(str, sorted(ids)[:NAMED]))
    return f"{shown}, …" if len(ids) > NAMED else shown


def first_names(names: list[str]) -> str:
    """Returns the first names, and how many more there are."""
    shown, more = ", ".join(names[:NAMED]), len(names) - NAMED
    return gettext("{names} and {more} more").format(names=shown, more=number(more)) if more > 0 else shown
