"""Events: names with a payload, emitted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgqueue import functions
from django_pgqueue.backend.lookup import database_of, pgqueue_backends
from django_pgqueue.exceptions import EventConflict, InvalidContent, InvalidMessage
from django_pgqueue.values import content, names
from django_pgqueue.values.limits import MAX_STORED_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING: Mapping[str, Any] = {}
RESERVED = "pgqueue:"


def emit(name: str, payload: Any = NOTHING, *, database: str | None = None) -> bool:
    """Emits an event in the caller's transaction.  Durable tasks that wait for it go on with its payload.

    The first emit of a name counts.  Returns False if the event was emitted before with the same payload.  Raises
    EventConflict if the payload differs; the first one stays.

    >>> emit("paid:7", {"charge": "ch_1"})  # doctest: +SKIP
    """
    alias = database_of(database)
    event_name(name)
    if payload is None:
        message = (
            f"emit({name!r}, None): a task that has waited for too long gets None. Emit another value, such as {{}} or "
            "True."
        )
        raise InvalidContent(message)
    text = content.encode(payload, max_bytes=_max_bytes(alias), what=f"the payload of the event {name!r}")
    with functions.explained(alias):
        status = functions.event_emit(connections[alias], name, text)
    if status == "different":
        message = f"The event {name!r} was emitted before, with another payload: the first one stays."
        raise EventConflict(message)
    return status == "emitted"


async def aemit(name: str, payload: Any = NOTHING, *, database: str | None = None) -> bool:
    """The ``async`` variant of ``emit``."""
    return await sync_to_async(emit)(name, payload, database=database)


def event_name(name: str) -> str:
    """Returns the name of an event.  Raises InvalidMessage for one that the queue cannot take."""
    names.name_of("event", name, InvalidMessage)
    if name.startswith(RESERVED):
        message = f"The event {name!r} begins with {RESERVED!r}: these names belong to the queue. Choose another one."
        raise InvalidMessage(message)
    return name


def _max_bytes(alias: str) -> int:
    limits = [one.settings.max_content_bytes for one in pgqueue_backends().values() if one.settings.database == alias]
    return max(limits, default=MAX_STORED_BYTES)
