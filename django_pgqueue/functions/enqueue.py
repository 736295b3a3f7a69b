"""Enqueue: the one place that chooses the SQL function."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.channel import refusal
from django_pgqueue.functions.new_message import NewMessage
from django_pgqueue.values.content import ENCODER
from django_pgqueue.values.times import Delay, from_microseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.new_message import UniqueKey


@dataclass(frozen=True, slots=True)
class Created:
    """Message that is in the queue after an enqueue."""

    id: int
    created_at: dt.datetime
    is_new: bool = True
    """False: the message was there already and holds the unique key; ``created_at`` is the time of this enqueue."""


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint negates a number too large.
PLACES = {
    "content": "p_content => %s::jsonb",
    "contents": "p_contents => %s::jsonb",
    "queue": "p_queue => %s",
    "task": "p_task => %s",
    "priority": "p_priority => %s",
    "dequeue_at": "p_dequeue_at => cast(%s as bigint)",
    # Counted from the database's clock, the only one that all clients share.
    "delay_ms": "p_dequeue_at => pgqueue_now(now()) + %s::bigint",
    "channel": "p_channel => %s",
    "headers": "p_headers => %s::jsonb",
    "max_attempts": "p_max_attempts => %s",
    "max_lost": "p_max_lost => %s",
    "version": "p_version => %s",
    "unique_key": "p_unique_key => %s",
    "on_conflict": "p_on_conflict => %s",
    "until_started": "p_until_started => %s",
    "after_ids": "p_after_ids => %s::bigint[]",
    "policy": "p_policy => %s",
    "results": "p_keep_results => %s",
}
DEFAULTS = {item.name: item.default for item in fields(NewMessage) if item.name in PLACES and item.name != "content"}
"""Default values, the same as those of the SQL functions."""
# psycopg reads a number faster than a timestamp.  Whole, because extra_float_digits may round others.
CLOCK = "(extract(epoch from pgqueue_clock(now())) * 1000000)::bigint"


def enqueue(connection: Connection, message: NewMessage, what: str = "The message") -> Created:
    """Enqueues one message.

    Raises ChannelFull or ChannelReleased if its channel refuses it.  ``what``: name of the message in these errors.
    """
    given = _given(message)
    with connection.cursor() as cursor:
        cursor.execute(_statement(*given), tuple(given.values()))
        message_id, microseconds, *is_new = cursor.fetchone()
    if message_id is None:
        raise refusal(connection, message.channel, what)
    return Created(message_id, from_microseconds(microseconds), *is_new)


def enqueue_many(connection: Connection, messages: Iterable[NewMessage]) -> list[int | None]:
    """Enqueues messages with one statement and returns their ids; None for each that its channel refuses.

    Raises ValueError for a message with ``after`` or with a ``Delay``: the SQL enqueues these one by one only.
    """
    described = f"[{','.join([_described(message) for message in messages])}]"
    return _ids(connection, "select pgqueue_message_create_many(%s::jsonb)", (described,))


def enqueue_alike(connection: Connection, contents: Iterable[str], like: NewMessage) -> list[int | None]:
    """Enqueues a message for each of ``contents`` with the fastest statement, and returns ids as ``enqueue_many`` does.

    All other fields are those of ``like``, which may have neither a unique key nor ``after``.
    """
    given = {"contents": f"[{','.join(contents)}]", "queue": like.queue} | _given(like)
    del given["content"]
    return _ids(connection, _statement(*given), tuple(given.values()))


def message_lock_keys(connection: Connection, task: str, *, alone: bool) -> None:
    """Prevents deadlocks between transactions that enqueue many messages with unique keys; call it before the enqueue.

    ``alone``: the messages come in several statements (see the SQL function).
    """
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_lock_keys(%s, %s)", (task, alone))


@cache
def _statement(*given: str) -> str:
    """Returns the statement for these fields only.

    Django's cursors write the values into the statement, and the server parses it anew each time.  The fields that a
    message does not need would cost a tenth of its enqueue.
    """
    places = ", ".join([PLACES[name] for name in given])
    if "contents" in given:
        return f"select pgqueue_message_create_many({places})"
    if "unique_key" in given:
        return f"select u.p_id, {CLOCK}, u.p_created from pgqueue_message_create_unique({places}) as u"  # noqa: S608 - constants
    function = "pgqueue_message_create_after" if "after_ids" in given else "pgqueue_message_create"
    return f"select {function}({places}), {CLOCK}"


def _given(message: NewMessage) -> dict[str, Any]:
    """Returns the values of the message that are not defaults, by the names of ``PLACES``."""
    given: dict[str, Any] = {"content": message.content}
    for name, default in DEFAULTS.items():
        value = getattr(message, name)
        if value != default:
            given[name] = value
    if message.when is not None:
        given["delay_ms" if isinstance(message.when, Delay) else "dequeue_at"] = message.when.ms
    if message.unique is not None:
        given["unique_key"] = message.unique.key
        given["on_conflict"] = message.unique.on_conflict
        given["until_started"] = message.unique.until_started
    if message.after is not None:
        given["after_ids"] = list(message.after.ids)
        given["policy"] = message.after.policy
        if message.after.results:
            given["results"] = True
    return given


def _described(message: NewMessage) -> str:
    """Returns the JSON object that ``pgqueue_message_create_many`` takes."""
    if message.after is not None or type(message.when) is Delay:
        words = f"A message with after={message.after!r} and when={message.when!r} can only be enqueued alone."
        raise ValueError(words)
    members = [f'"content":{message.content}', _shared_members(_shared(message))]
    if message.headers is not None:
        members.append(f'"headers":{message.headers}')
    if message.unique is not None:
        members.append(_key_members(message.unique))
    return f"{{{','.join(members)}}}"


SHARED = ("queue", "task", "priority", "channel", "max_attempts", "max_lost", "version", "when")
_shared = attrgetter(*SHARED)


@lru_cache(maxsize=1000)
def _shared_members(values: tuple[Any, ...]) -> str:
    """Returns the members that many messages of a bulk share, cached: encoding them each time would cost the most."""
    members = dict(zip(SHARED, values, strict=True))
    when = members.pop("when")
    if when is not None:
        members["dequeue_at"] = when.ms
    for name in ("max_lost", "version"):  # a queue of an earlier release does not know them
        if members[name] is None:
            del members[name]
    return ENCODER.encode(members)[1:-1]


def _key_members(unique: UniqueKey) -> str:
    key, until_started = ENCODER.encode(unique.key), "true" if unique.until_started else "false"
    return f'"unique_key":{key},"on_conflict":"{unique.on_conflict}","until_started":{until_started}'


def _ids(connection: Connection, sql: str, params: tuple[Any, ...]) -> list[int | None]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [row[0] for row in cursor.fetchall()]
