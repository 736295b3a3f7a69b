"""Functions for parked messages: those that a worker gave back because it does not know their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.functions.connection import answered_ids, array_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.dequeue import Received


class Line(NamedTuple):
    """The parked messages of a task in a queue."""

    queue: str
    task: str


class ParkedLine(NamedTuple):
    queue: str
    task: str
    unknown_since: int | None
    """Epoch ms; None: workers know it, and leave it to those of a later version."""
    reason: str | None
    version: str | None
    """Of the message that is to be tried next, as the reason."""

    @property
    def line(self) -> Line:
        return Line(self.queue, self.task)


class ParkedCall(NamedTuple):
    """With what arguments a parked message calls its task, and which version has enqueued it."""

    id: int
    parked_at: int
    """Epoch ms."""
    args: int | None
    """The number of arguments without a name; None: the content is no call."""
    kwargs: list[str] | None
    version: str | None
    unknown: bool
    """A worker has given it back, because it could not take it."""


def message_park(
    connection: Connection, messages: Iterable[tuple[Received, str]], *, worker: str, unknown: bool = True
) -> set[int]:
    """Gives back messages, each with the reason why the worker cannot run it.  No attempt counts.

    ``unknown=False``: it could, and leaves them to workers of a later version.

    Returns the ids of those that ``worker`` still held.
    """
    held = sorted((message.id, message.attempt, reason) for message, reason in messages)
    return answered_ids(
        connection,
        "select pgqueue_message_park(%s::bigint[], %s::integer[], %s, %s::text[], %s)",
        (
            [id_ for id_, *_ in held],
            [attempt for _, attempt, _ in held],
            worker,
            [reason for *_, reason in held],
            unknown,
        ),
    )


def message_parked(connection: Connection, *, limit: int, after: tuple[str, str] = ("", "")) -> list[ParkedLine]:
    """Returns which tasks have parked messages, in the order of (queue, task)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select p_queue, p_task, p_unknown_since, p_reason, p_version from pgqueue_message_parked(%s, %s, %s, 0)",
            (limit, *after),
        )
        return [ParkedLine(*row) for row in cursor.fetchall()]


def message_parked_calls(connection: Connection, line: Line, *, after: tuple[int, int], limit: int) -> list[ParkedCall]:
    """Returns the arguments of parked messages in the order of (parked_at, id), up to ``limit`` after one of them."""
    with connection.cursor() as cursor:
        cursor.execute("select * from pgqueue_message_parked_calls(%s, %s, %s, %s, %s)", (*line, *after, limit))
        return [ParkedCall(*row) for row in cursor.fetchall()]


def message_unpark(connection: Connection, lines: Sequence[Line], *, limit: int, ids: Sequence[int] = ()) -> int:
    """Makes ``ids`` and up to ``limit`` other parked messages ready again, and returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_message_unpark(%s::text[], %s::text[], %s, %s::bigint[])",
            (*_columns(lines), limit, array_of(ids)),
        )
        return int(cursor.fetchone()[0])


def message_unknown_fail(connection: Connection, lines: Sequence[Line], *, seconds: int) -> int:
    """Fails messages that no living worker has known for ``seconds``, and returns how many."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_unknown_fail(%s::text[], %s::text[], %s)", (*_columns(lines), seconds))
        return int(cursor.fetchone()[0])


def _columns(lines: Sequence[Line]) -> tuple[list[str], list[str]]:
    return [line.queue for line in lines], [line.task for line in lines]
