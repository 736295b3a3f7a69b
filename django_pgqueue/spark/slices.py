"""Slices of a table, one for each task: they share no row and miss none, whatever happens in between.

The history is cut by the days of its partitions, and large days by id.  The cuts are conditions on the rows themselves,
so a partition that is made or dropped between planning and reading changes nothing.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from psycopg import sql
from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    import psycopg

BYTES_A_TASK = 128 * 2**20
ROWS_A_TASK = 50_000
DAY = dt.timedelta(days=1)
DAYS = """
    select c.relname, pg_relation_size(c.oid)
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgqueue_attempt'::regclass
"""
ENDS = "select min(id), max(id) from pgqueue_attempt where finished_at >= %s and finished_at < %s"
COUNT = """
    select count(*)
    from (select from pgqueue_attempt where transaction_id >= %s and transaction_id < %s limit %s) as a
"""


Part = tuple[sql.Composable, ...]
"""The rows of one task: a condition for each of its statements."""
EVERYTHING = sql.SQL("true")
WHOLE: Part = (EVERYTHING,)


@dataclass(frozen=True, kw_only=True)
class Slice(InputPartition):
    """The statements that one task reads."""

    statements: tuple[str, ...]
    reached: int | None = None
    """The transactions before this one have to be in the replica that a task reads."""


def between(column: str, low: Any, high: Any) -> sql.Composable:
    """Returns the condition that a value is ``low`` or more, and less than ``high``; None is open."""
    parts = [
        sql.SQL(text).format(sql.Identifier(column), value)
        for text, value in (("{} >= {}", low), ("{} < {}", high))
        if value is not None
    ]
    return sql.SQL(" and ").join(parts) if parts else EVERYTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The partition of one day."""

    begin: dt.datetime
    size: int

    @property
    def end(self) -> dt.datetime:
        return self.begin + DAY

    def rows(self, first: int | None, end: int | None) -> sql.Composable:
        """Returns the condition for the rows of the day between two ids."""
        return sql.SQL(" and ").join([between("finished_at", self.begin, self.end), between("id", first, end)])

    def overlaps(self, earliest: dt.datetime | None, latest: dt.datetime | None) -> bool:
        return (earliest is None or self.end > earliest) and (latest is None or self.begin <= latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where one slice ends and the next begins: an id in a day."""

    day: Day
    id: int


def of_transactions(connection: psycopg.Connection, first: int, end: int, *, at_most: int) -> list[Part] | None:
    """Cuts the rows of some transactions by remainder: each task scans all of them.  None: they are too many."""
    limit = ROWS_A_TASK * at_most
    rows = count(connection, first, end, limit=limit)
    return None if rows > limit else parts(rows, at_most=at_most)


def parts(rows: int, *, at_most: int) -> list[Part]:
    """Returns parts of the same size, by the remainder of the id."""
    number = max(1, min(at_most, math.ceil(rows / ROWS_A_TASK)))
    return [(sql.SQL("id % {} = {}").format(number, each),) for each in range(number)] if number > 1 else [WHOLE]


def count(connection: psycopg.Connection, first: int, end: int, *, limit: int) -> int:
    """Returns how many rows some transactions wrote; it stops counting one row beyond the limit."""
    row = connection.execute(COUNT, [first, end, limit + 1]).fetchone()
    return int(row[0]) if row else 0


def of_days(
    connection: psycopg.Connection,
    *,
    at_most: int,
    exactly: int | None = None,
    earliest: dt.datetime | None = None,
    latest: dt.datetime | None = None,
) -> list[Part]:
    """Cuts the whole history into slices of about the same size; only days between the two times count for the size."""
    days = [day for day in _days(connection) if day.overlaps(earliest, latest)]
    wanted = exactly or max(1, min(at_most, math.ceil(sum(day.size for day in days) / BYTES_A_TASK)))
    # Rows before the first day, after the last or between the days belong to one of the slices too.
    return [_between(low, high) for low, high in pairwise([None, *_cuts(connection, days, wanted), None])]


def _days(connection: psycopg.Connection) -> list[Day]:
    found = []
    for name, size in connection.execute(DAYS):
        if date := re.fullmatch(r"pgqueue_attempt_(\d{8})", name):
            found.append(Day(begin=dt.datetime.strptime(date[1] + "+0000", "%Y%m%d%z"), size=size))
    return sorted(found, key=lambda day: day.begin)


def _cuts(connection: psycopg.Connection, days: list[Day], wanted: int) -> list[Cut]:
    share = sum(day.size for day in days) / wanted
    cuts: list[Cut] = []
    passed = 0.0
    for day in days:
        ends = [share * number for number in range(1, wanted) if passed < share * number <= passed + day.size]
        cuts += [Cut(day=day, id=id_) for id_ in _ids(connection, day, [(end - passed) / day.size for end in ends])]
        passed += day.size
    return cuts


def _ids(connection: psycopg.Connection, day: Day, fractions: list[float]) -> list[int]:
    """Returns the ids at some fractions of a day."""
    if not fractions:
        return []
    first, last = connection.execute(ENDS, [day.begin, day.end]).fetchone() or (None, None)
    if first is None:
        return []
    return sorted({first + math.floor((last - first + 1) * fraction) for fraction in fractions})


def _between(low: Cut | None, high: Cut | None) -> Part:
    """Returns the ranges between two cuts: the end of one day, whole days, the beginning of another."""
    if low is not None and high is not None and low.day == high.day:
        return (low.day.rows(low.id, high.id),)
    ranges = []
    if low is not None:
        ranges.append(low.day.rows(low.id, None))
    if low is None or high is None or low.day.end < high.day.begin:
        ranges.append(between("finished_at", low and low.day.end, high and high.day.begin))
    if high is not None:
        ranges.append(high.day.rows(None, high.id))
    return tuple(ranges)
