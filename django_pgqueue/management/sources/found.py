"""A row of another queue, in words of this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from django_pgqueue.exceptions import InvalidSchedule

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Sequence

    from django_pgqueue.tasks.schedule import Rule

AT_A_TIME = 100
"""So many rows are in memory at a time: each may have a megabyte."""


class Unmeant(Exception):
    """A row that has no meaning here.  Its text says why."""


def meant(read: Callable[[], Job | Recurring | Unmeant]) -> Job | Recurring | Unmeant:
    """Returns what a row means.  Rows may hold anything: one that cannot be read stays, and stops no others."""
    try:
        return read()
    except Unmeant as unmeant:
        return unmeant
    except InvalidSchedule as error:
        return Unmeant(str(error))
    except Exception as error:  # noqa: BLE001 -- such as RecursionError of deep JSON
        return Unmeant(f"it cannot be read ({type(error).__name__}: {error})")


def call_of(args: Any, kwargs: Any) -> dict[str, Any]:
    if type(args) is not list or type(kwargs) is not dict:
        message = "its arguments are not a call"
        raise Unmeant(message)
    return {"args": args, "kwargs": kwargs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    task: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue: str | None = None
    """None: the task's own."""
    priority: int | None = None
    run_after: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurring:
    name: str
    task: str
    rule: Rule
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue: str | None = None
    not_before: dt.datetime | None = None
    """When it is due for the first time, or at the next time of the rule after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: Any
    table: str
    task: str
    means: Job | Recurring | Unmeant


class Source(Protocol):
    """The tables of another queue.  A row that is found is locked, and no worker of that queue can take it."""

    TABLES: ClassVar[Sequence[str]]

    def found(self, connection: Any) -> Iterator[Row]:
        """Yields what waits, in the order in which it would run."""

    def moved(self, connection: Any, rows: Sequence[Row]) -> None:
        """Deletes what has been moved."""


def selected(connection: Any, sql: str, *parameters: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a query, however many there are."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql, parameters)
        rows = cursor.fetchmany(AT_A_TIME)
        names = [column[0] for column in cursor.description]
        while rows:
            for row in rows:
                yield dict(zip(names, row, strict=True))
            rows = cursor.fetchmany(AT_A_TIME)


def delete(connection: Any, sql: str, rows: Sequence[Row]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, [[row.id for row in rows]])
