"""The messages that another one waits for: what a user reads before the other one runs without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, ngettext

from django_pgqueue.admin.message.related import standing
from django_pgqueue.admin.parts import queries
from django_pgqueue.admin.parts.database import url
from django_pgqueue.admin.parts.display import number
from django_pgqueue.monitoring.overview.capped import Capped

if TYPE_CHECKING:
    import datetime as dt

    from django.utils.safestring import SafeString

NAMED = 20
COUNTED = 10_000

LEFT = """
select m.after_policy, cardinality(m.after_ids), found.ids[:%(named)s], found.running, found.waiting
from pgqueue_message m
cross join lateral (
    select array_agg(d.id) as ids, count(*) filter (where d.unlock_at is not null) as running,
           count(*) filter (where d.unlock_at is null) as waiting
    from (
        select a.id, d.unlock_at from unnest(m.after_ids) as a (id)
        cross join lateral (select m.unlock_at from pgqueue_message m where m.id = a.id limit 1) as d
        limit %(counted)s
    ) as d
) as found
where m.id = %(id)s and m.after_ids is not null
"""


class Awaited(NamedTuple):
    """The messages that have to end before another one runs."""

    all: int
    """So many messages it was enqueued to wait for."""
    named: list[int]
    """Ids of the first that have not ended."""
    running: int
    waiting: int
    standing: dict[int, str]
    must_succeed: bool
    """It is cancelled if one of them fails."""

    @classmethod
    def by(cls, pk: int, now: dt.datetime) -> Awaited | None:
        """Returns None if the message does not wait for others, or not any more."""
        for policy, count, ids, running, waiting in queries.rows(
            LEFT, {"id": pk, "named": NAMED, "counted": COUNTED + 1}
        ):
            named = list(ids or ())
            return cls(count, named, running, waiting, standing(named, now, history=False), policy == "succeeded")
        return None

    @property
    def left(self) -> Capped:
        return Capped.of(self.running + self.waiting, COUNTED)

    def sentence(self) -> str:
        if not self.left.value:
            return ngettext(
                "It waits for {count} job, which has ended. A worker will notice this soon.",
                "It waits for {count} jobs, which have all ended. A worker will notice this soon.",
                self.all,
            ).format(count=number(self.all))
        counted = {gettext("{count} running"): self.running, gettext("{count} waiting"): self.waiting}
        parts = [words.format(count=Capped.of(count, COUNTED)) for words, count in counted.items() if count]
        if self.all == 1:
            words = gettext("It waits for 1 job, which has not ended yet ({parts}).")
        else:
            words = ngettext(
                "It waits for {count} jobs, of which {left} has not ended yet ({parts}).",
                "It waits for {count} jobs, of which {left} have not ended yet ({parts}).",
                self.left.value,
            )
        return words.format(count=number(self.all), left=self.left, parts=", ".join(parts))

    def not_ended(self) -> SafeString:
        """Returns links to the first that have not ended, and how many more there are."""
        more = self.more()
        words = gettext("Not ended: {ids} and {count} more.") if more else gettext("Not ended: {ids}.")
        return format_html(words, ids=self.links(), count=more)

    def links(self) -> SafeString:
        shown = ((url("message_change", pk), str(pk), self.standing.get(pk, gettext("ended"))) for pk in self.named)
        return format_html_join(", ", '<a href="{}">{}</a> <span class="pgqueue-quiet">({})</span>', shown)

    def more(self) -> str:
        """Returns how many have not ended besides those with a link."""
        rest = self.running + self.waiting - len(self.named)
        return str(Capped.of(rest, COUNTED - len(self.named))) if rest > 0 else ""
