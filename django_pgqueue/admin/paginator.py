"""Pages of tables that nobody can count while they wait."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.paginator import Page, Paginator

from django_pgqueue.admin.display import number
from django_pgqueue.admin.status import LINE
from django_pgqueue.overview.bounds import set_for
from django_pgqueue.overview.probes import PINNED

if TYPE_CHECKING:
    from django.db.models import QuerySet


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Looks for the first CAP keys, once, and fetches the rows of a page by them.

    Nothing behind the cap is counted or can be reached. ``rows`` is the queryset that knows how a row is shown; the
    filtered one only finds keys, so that a filter that no index serves reads the table once and not twice.
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
        """The count as people read it: 10 000+ where counting stopped."""
        return f"{number(self.count)}+" if self.is_capped else number(self.count)

    @property
    def is_capped(self) -> bool:
        return len(self.keys) > self.CAP

    @cached_property
    def keys(self) -> list[Any]:
        return list(self.found.values_list("pk", flat=True)[: self.CAP + 1])


class LinePaginator(CappedPaginator):
    """Waiting messages in the order in which workers take them: those of no channel, and then channel by channel.

    Two indexes have them so, and each is read only as far as the page needs it.  Sorted, all of them would be read.
    """

    @cached_property
    def keys(self) -> list[Any]:
        with set_for(self.found.db, PINNED):
            plain = self.found.filter(channel__isnull=True).values_list("pk", flat=True)
            keys = list(plain[: self.CAP + 1])
            if len(keys) <= self.CAP:
                of_channels = self.found.filter(channel__isnull=False).order_by("channel", *LINE)
                keys += of_channels.values_list("pk", flat=True)[: self.CAP + 1 - len(keys)]
        return keys
