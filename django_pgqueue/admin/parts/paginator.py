"""Paginators for tables that are too large to count."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import F
from django.db.models.expressions import RawSQL
from django.db.models.lookups import Exact, IsNull

from django_pgqueue.admin.parts.display import number
from django_pgqueue.admin.parts.status import LINE
from django_pgqueue.monitoring.overview import queries
from django_pgqueue.monitoring.overview.limits import set_for
from django_pgqueue.monitoring.overview.queries import PINNED

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from django.db.models import QuerySet


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Fetches the first CAP keys once, and the rows of a page by their keys.

    Rows behind the cap are not counted and cannot be reached. ``rows`` is the queryset with the columns of a row; the
    filtered queryset only finds keys, so that a filter without an index reads the table once and not twice.
    """

    CAP = 10_000

    def __init__(self, found: QuerySet[Any], per_page: int, *, rows: QuerySet[Any]) -> None:
        super().__init__(found, per_page)
        self.found = found
        self.rows = rows

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        keys = self.keys[(number - 1) * self.per_page : number * self.per_page]
        rows = {row.pk: row for row in self.rows.order_by().filter(pk__in=keys)}
        return Page([rows[key] for key in keys if key in rows], number, self)

    @cached_property
    def count(self) -> int:
        return min(len(self.keys), self.CAP)

    @property
    def label(self) -> str:
        """The formatted count: 10 000+ where counting stopped."""
        return f"{number(self.count)}+" if self.is_capped else number(self.count)

    @property
    def is_capped(self) -> bool:
        return len(self.keys) > self.CAP

    @cached_property
    def keys(self) -> list[Any]:
        return list(self.found.values_list("pk", flat=True)[: self.CAP + 1])


class LinePaginator(CappedPaginator):
    """Waiting messages in the order in which each queue's workers take them: first those without a channel, and then
    channel by channel.

    Four indexes have them, and each is read only as far as the page needs it.  A sort would read all messages.  So if
    there are more than CAP, the page shows the first that are found, of the ready ones the highest priorities first.
    """

    def __init__(self, found: QuerySet[Any], per_page: int, *, rows: QuerySet[Any], ready: bool) -> None:
        super().__init__(found, per_page, rows=rows)
        self.ready = ready

    @cached_property
    def keys(self) -> list[Any]:
        found: list[LinePlace] = []
        with set_for(self.found.db, PINNED):
            for part in self._parts():
                found += itertools.starmap(LinePlace, part.values_list(*LinePlace._fields)[: self.CAP + 1 - len(found)])
                if len(found) > self.CAP:
                    break
        if len(found) <= self.CAP:
            found.sort(key=LinePlace.in_line)
        return list(dict.fromkeys(place.id for place in found))

    def _parts(self) -> Iterator[QuerySet[Any]]:
        waiting = self.found.annotate(raw=IsNull(F("task"), True))
        plain = waiting.filter(channel__isnull=True)
        # These come first: if a claim brings them into line meanwhile, they are found twice, and not missed.
        if self.ready:
            for raw in (False, True):
                yield plain.filter(_is_raw(raw), in_line=False).order_by("-priority", "dequeue_at")
        else:
            yield plain.filter(in_line=False).order_by(*LINE)
        for raw, priority in queries.rows(LEVELS, using=self.found.db):
            yield plain.filter(_is_raw(raw), in_line=True, priority=priority).order_by("queue", "dequeue_at", "id")
        yield waiting.filter(channel__isnull=False).order_by("channel", *LINE)


class LinePlace(NamedTuple):
    id: int
    channel: str | None
    queue: str
    raw: bool
    priority: int
    dequeue_at: dt.datetime

    def in_line(self) -> tuple[Any, ...]:
        return (self.channel or "", self.queue, self.raw, -self.priority, self.dequeue_at, self.id)


LEVELS = "select p_raw, p_priority from pgqueue_message_levels() order by p_raw, p_priority desc"


def _is_raw(raw: bool) -> Any:
    # The planner turns (task is null) = <constant> into "task is not null", which is no key of the index.
    return Exact(IsNull(F("task"), True), RawSQL("select %s::boolean", [raw]))
