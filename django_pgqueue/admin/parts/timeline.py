"""The steps of a durable task, on the page of its message and on those of its attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.parts import display, queries
from django_pgqueue.admin.parts.database import url
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.values.times import EpochDateTime

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

STEPS_SHOWN = 100
STEPS = """
select s.name, s.kind, s.status, s.attempt,
       case when s.started_at is not null then greatest(s.started_at, '0001-01-02 00:00:00+00') end,
       least(greatest(s.finished_at, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00'), s.until,
       left(s.error, 1000), case when pg_column_size(s.result) < 10000 then left(s.result::text, 1000) end
from pgqueue_step s
where s.message_id = %(id)s
order by s.attempt, s.finished_at
limit %(most)s
"""
TONES = {"done": "green", "failed": "red", "waiting": "blue", "began": "amber", "unasked": "amber"}
STATUSES = {
    "done": gettext_lazy("done"),
    "failed": gettext_lazy("failed"),
    "waiting": gettext_lazy("waiting"),
    "began": gettext_lazy("began"),
    "unasked": gettext_lazy("unasked"),
}
KINDS = {
    "step": gettext_lazy("step"),
    "atomic": gettext_lazy("atomic step"),
    "enqueue": gettext_lazy("enqueue"),
    "sleep": gettext_lazy("sleep"),
    "event": gettext_lazy("event"),
    "approval": gettext_lazy("approval"),
}


def recorded_steps(message_id: int, *, sees: bool) -> list[dict[str, Any]]:
    """Returns the records of steps, the first ones first: one more than are shown, if there are more."""
    return [
        {
            "name": name,
            "kind": kind,
            "status": display.label(str(STATUSES.get(status, status)), TONES.get(status, "grey")),
            "facts": _facts(
                kind,
                attempt_number,
                None if started is None else span(finished - started),
                None if until is None else display.moment(EpochDateTime.from_ms(until)),
            ),
            "finished": display.moment(finished),
            "error": error if sees else None,
            "result": result if sees else None,
        }
        for name, kind, status, attempt_number, started, finished, until, error, result in queries.rows(
            STEPS, {"id": message_id, "most": STEPS_SHOWN + 1}
        )
    ]


def _facts(kind: str, attempt_number: int, took: str | None, until: SafeString | str | None) -> SafeString:
    facts = [
        str(KINDS.get(kind, kind)),
        gettext("attempt {number}").format(number=attempt_number),
        *([gettext("took {time}").format(time=took)] if took else []),
        *([format_html(gettext("until {time}"), time=until)] if until else []),
    ]
    return format_html_join(", ", "{}", ((fact,) for fact in facts))


def drawn(steps: list[dict[str, Any]], again: str | None = None) -> SafeString:
    """``again``: the URL that enqueues the message again from a step; with it, each step has a button."""
    seen: set[str] = set()
    for step in steps[:STEPS_SHOWN]:  # one button a step: it has a record for each wait and each failure
        step["is_first"] = step["name"] not in seen
        seen.add(step["name"])
    context = {
        "steps": steps[:STEPS_SHOWN],
        "more": len(steps) > STEPS_SHOWN,
        "approvals": url("message_approvals") if any(step["kind"] == "approval" for step in steps) else None,
        "again": again,
    }
    return render_to_string("admin/django_pgqueue/message/steps.html", context)
