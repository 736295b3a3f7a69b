"""Related messages: those that a message waits for, those that wait for it, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import TextField
from django.db.models.fields.json import KeyTextTransform
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext

from django_pgqueue.admin.parts import display, queries
from django_pgqueue.admin.parts.database import alias, link, url
from django_pgqueue.admin.parts.expressions import Short
from django_pgqueue.admin.parts.read_only import is_id
from django_pgqueue.admin.parts.status import status_of
from django_pgqueue.models.tables import Attempt, Message, Schedule

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from django.utils.safestring import SafeString

NAMED = 20
# awaited_id is only one of the messages that a message waits for.  From the others, a scan of so many leads to it.
LOOKED_THROUGH = 10_000

DEPENDENTS = """
select w.id
from (select m.id from pgqueue_message m where m.awaited_id = %(id)s order by m.check_at limit %(named)s) as w
union
select w.id
from (
    select m.id, m.after_ids from pgqueue_message m where m.awaited_id > %(id)s order by m.awaited_id limit %(most)s
) as w
where %(id)s = any (w.after_ids)
union
select w.id
from (
    select m.id, m.after_ids from pgqueue_message m where m.check_at is not null order by m.check_at limit %(most)s
) as w
where %(id)s = any (w.after_ids)
order by 1
limit %(named)s
"""


def parent(name: str) -> Short:
    """A header that the queue itself wrote into a message that it made."""
    return Short(KeyTextTransform(name, "headers"), output_field=TextField())


class Related(NamedTuple):
    """Ids and names, fetched once for the page."""

    after: list[int]
    dependents: list[int]
    siblings: list[int]
    standing: dict[int, str]
    """Status by id."""
    again_from: str | None
    schedule: str | None

    @classmethod
    def of(cls, message: Message, now: dt.datetime, *, history: bool) -> Related:
        dependents = [row[0] for row in queries.rows(DEPENDENTS, _asked(message.pk))]
        after = list(message.after_ids or ())
        siblings = _siblings(message.pk, dependents)
        ids = [*after[:NAMED], *dependents, *siblings[:NAMED]]
        return cls(
            after,
            dependents,
            siblings,
            standing(ids, now, history=history),
            getattr(message, "again_from", None),
            _known(getattr(message, "schedule_name", None)),
        )

    def lines(self) -> Iterator[tuple[str, SafeString]]:
        if self.after:
            yield gettext("waits for"), self._links(self.after)
        if self.dependents:
            yield gettext("required by"), self._links(self.dependents)
        if self.siblings:
            yield gettext("in a batch with"), self._links(self.siblings)
        if self.again_from is not None and is_id(self.again_from):
            address = url("message_change", self.again_from)
            yield gettext("enqueued again from"), format_html('<a href="{}">{}</a>', address, self.again_from)
        if self.schedule is not None:
            yield gettext("enqueued by the schedule"), link("schedule_changelist", self.schedule, q=self.schedule)

    def _links(self, ids: Sequence[int]) -> SafeString:
        shown = ((url("message_change", pk), str(pk), self.standing.get(pk, gettext("ended"))) for pk in ids[:NAMED])
        return format_html(
            "{}{}",
            format_html_join(", ", '<a href="{}">{}</a> <span class="pgqueue-quiet">({})</span>', shown),
            " " + gettext("and {more} more").format(more=display.number(len(ids) - NAMED)) if len(ids) > NAMED else "",
        )


def _asked(pk: int) -> dict[str, Any]:
    return {"id": pk, "most": LOOKED_THROUGH, "named": NAMED}


def _known(schedule: str | None) -> str | None:
    """Returns the name of a schedule that there is: a program may write another text into the header of that name."""
    there = schedule is not None and Schedule.objects.using(alias()).filter(pk=schedule).exists()
    return schedule if there else None


def _siblings(pk: int, dependents: list[int]) -> list[int]:
    """Returns the rest of the message's batch: the other messages that its first dependent waits for."""
    if not dependents:
        return []
    waiting = Message.objects.using(alias()).filter(pk=dependents[0]).values_list("after_ids", flat=True).first()
    return [other for other in waiting or () if other != pk]


def standing(ids: list[int], now: dt.datetime, *, history: bool) -> dict[int, str]:
    waiting = (
        Message.objects.using(alias()).filter(pk__in=ids).values_list("pk", "dequeue_at", "unlock_at", "after_policy")
    )
    found = {
        pk: gettext("waits for others")
        if after_policy is not None
        else display.status(status_of(dequeue_at, unlock_at, now))
        for pk, dequeue_at, unlock_at, after_policy in waiting
    }
    gone = [pk for pk in ids if pk not in found]
    if gone and history:
        ended = Attempt.objects.using(alias()).filter(message_id__in=gone, final=True)
        found |= {pk: display.status(status) for pk, status in ended.values_list("message_id", "status")}
    return found
