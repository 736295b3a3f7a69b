"""Edits: actions for everything that matches a filter."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from django_pgqueue.functions.connection import Connection


class EditState(NamedTuple):
    """How far an edit is."""

    id: int
    action: str
    filter: str
    """JSON, as are the parameters."""
    parameters: str
    asked_by: str
    asked_at: dt.datetime
    started_at: dt.datetime | None
    stopped_at: dt.datetime | None
    finished_at: dt.datetime | None
    done: int
    """So many messages were changed, or enqueued again."""
    asked: int
    """So many running ones were asked to stop."""
    awaiting: int
    """So many were left out, because they wait for others."""
    skipped: int
    """So many could not be changed, because they run, or need no change."""
    error: str | None
    fraction: float
    """From 0 to 1: the part of the ids that was looked at."""


def edit_ask(
    connection: Connection, action: str, which: Mapping[str, Any], parameters: Mapping[str, Any], *, by: str | None
) -> int:
    """Asks for an edit, which workers do, and returns its id.  ``by``: who asks; None: the role of the session."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_edit_ask(%s, %s::jsonb, %s::jsonb, coalesce(%s, session_user))",
            (action, _as_json(which), _as_json(parameters), by),
        )
        return int(cursor.fetchone()[0])


def edit_step(connection: Connection, *, limit: int = 1000, version: str | None = None) -> int | None:
    """Looks at so many ids for an edit, and returns the edit's.  None: there is none that no other worker does."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_edit_step(%s, %s)", (limit, version))
        found = cursor.fetchone()[0]
        return None if found is None else int(found)


def edit_stop(connection: Connection, edit_id: int, *, by: str | None = None) -> bool:
    """Stops an edit.  False: it has finished, or was stopped before."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_edit_stop(%s, coalesce(%s, session_user))", (edit_id, by))
        return bool(cursor.fetchone()[0])


def edit_resume(connection: Connection, edit_id: int) -> bool:
    """Lets a stopped edit go on.  False: it has finished, or was not stopped."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_edit_resume(%s)", (edit_id,))
        return bool(cursor.fetchone()[0])


EDIT = """
select e.id, e.action, e.filter::text, e.parameters::text, e.asked_by, e.asked_at, e.started_at, e.stopped_at,
       e.finished_at, e.done, e.asked, e.awaiting, e.skipped, e.error,
       case when e.finished_at is not null and e.error is null then 1
            else (e.position - e.first_id + 1)::float8 / greatest(1, e.last_id - e.first_id + 1) end
from pgqueue_edit e where e.id = %s
"""


def edit_state(connection: Connection, edit_id: int) -> EditState | None:
    """Returns how far an edit is.  None: there is no such edit."""
    with connection.cursor() as cursor:
        cursor.execute(EDIT, (edit_id,))
        row = cursor.fetchone()
        return None if row is None else EditState(*row)


class EditCount(NamedTuple):
    """The number of rows that match a filter now."""

    matches: int
    is_exact: bool
    """False: the time was up, and there may be more."""


MESSAGES = (
    "select cardinality(p_ids), p_last from pgqueue_edit_messages(%s::jsonb, %s, %s, 10000)",
    "select min(m.id), max(m.id) from pgqueue_message m",
)
ATTEMPTS = (
    "select cardinality(p_ids), p_last from pgqueue_edit_attempts(%s::jsonb, %s, %s, 10000)",
    "select min(a.id), max(a.id) from pgqueue_attempt a",
)


def edit_count(
    connection: Connection, action: str, which: Mapping[str, Any], *, seconds: float | None = None
) -> EditCount:
    """Counts what an edit would look at, in steps, for at most so many ``seconds`` (None: to the end)."""
    step, ends = ATTEMPTS if action == "enqueue_again" else MESSAGES
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_edit_check(%s, %s::jsonb)", (action, _as_json(which)))
        cursor.execute(ends)
        first, last = cursor.fetchone()
        count, position = 0, (first or 0) - 1
        while last is not None and position < last:
            if time.monotonic() > until:
                return EditCount(count, is_exact=False)
            cursor.execute(step, (_as_json(which), position, last))
            found, position = cursor.fetchone()
            count += found
    return EditCount(count, is_exact=True)


def _as_json(values: Mapping[str, Any]) -> str:
    """Without escapes, which a database in SQL_ASCII refuses."""
    return json.dumps(dict(values), ensure_ascii=False)
