"""The messages that another one waits for: what a user reads before the other one runs without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.html import format_html_join

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
        jobs = "1 job" if self.all == 1 else f"{number(self.all)} jobs"
        if not self.left.value:
            have = "which has ended" if self.all == 1 else "which have all ended"
            return f"It waits for {jobs}, {have}. A worker will notice this soon."
        have = "has" if self.left.value == 1 else "have"
        counted = {"running": self.running, "waiting": self.waiting}
        parts = [f"{Capped.of(count, COUNTED)} {how}" for how, count in counted.items() if count]
        of_which = "which" if self.all == 1 else f"of which {self.left}"
        return f"It waits for {jobs}, {of_which} {have} not ended yet ({', '.join(parts)})."

    def links(self) -> SafeString:
        shown = ((url("message_change", pk), str(pk), self.standing.get(pk, "ended")) for pk in self.named)
        return format_html_join(", ", '<a href="{}">{}</a> <span class="pgqueue-quiet">({})</span>', shown)

    def more(self) -> str:
        """Returns how many have not ended besides those with a link."""
        rest = self.running + self.waiting - len(self.named)
        return str(Capped.of(rest, COUNTED - len(self.named))) if rest > 0 else ""
