"""The options of the data source: text from Spark, parsed and checked once."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark import tasks
from django_pgqueue.spark.errors import InvalidColumns, InvalidOption
from django_pgqueue.spark.schema import TABLES, TEXT, chosen
from django_pgqueue.values.limits import MAX_STORED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_pgqueue.spark.tasks import DeclaredTask

SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname"})
REMOVED = "pushFilters"


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("some text")
    return value.strip()


def run_name(value: str) -> str:
    """Limits the name to 200 bytes: a stream appends the id of its query, and the column has 255 bytes."""
    if len(value.encode(errors="replace")) > 200 or re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError("text of 1 to 200 bytes in UTF-8, without control characters")
    return text(value)


def names(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    expected = f"a whole number from {least} {'on' if most is None else f'to {most:,}'}"

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value.strip()) or not least <= int(value) <= (most or int(value)):
            raise ValueError(expected)
        return int(value)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in words:
            raise ValueError(" or ".join(words))
        return value.strip().lower()

    return parse


def moment(value: str) -> dt.datetime:
    expected = "a time with its zone, such as 2026-11-01T00:00:00+00:00"
    try:
        found = dt.datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(expected) from None
    if found.tzinfo is None:
        raise ValueError(expected)
    return found


def option(default: Any, parse: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """The options of one read or one write: docs/pages/data/spark.md says what each means.

    >>> PipelineOptions.of({"maxConnections": "4"}).max_connections
    4
    """

    url_variable: str = option("DATABASE_URL", text)
    credentials: str | None = option(None, text)
    url: str | None = option(None, text)
    replica_variable: str | None = option(None, text)
    max_connections: int = option(8, whole(1))
    table: str = option("attempts", one_of(*TABLES))
    columns: tuple[str, ...] = option((), names)
    mask: tuple[str, ...] = option((), names)
    mask_key_variable: str = option("PGQUEUE_MASK_KEY", text)
    finished_from: dt.datetime | None = option(None, moment)  # noqa: RUF009 -- a field
    finished_to: dt.datetime | None = option(None, moment)  # noqa: RUF009
    where: str | None = option(None, text)
    num_partitions: int | None = option(None, whole(1))
    from_transaction: int | None = option(None, whole(0))
    to_transaction: int | None = option(None, whole(0))
    starting_offset: str = option("earliest", one_of("earliest", "latest"))
    max_rows_per_batch: int = option(1_000_000, whole(1))
    run_id: str | None = option(None, run_name)
    replay: str | None = option(None, run_name)
    tasks: Mapping[str, DeclaredTask] | None = option(None, tasks.parse)
    dead_letter_path: str | None = option(None, text)
    max_content_bytes: int = option(1_048_576, whole(1, MAX_STORED_BYTES))

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PipelineOptions:
        known = {field.name.replace("_", ""): field for field in fields(cls)}
        values = {}
        for key, value in given.items():
            if (found := known.get(key.lower())) is not None:
                values[found.name] = _parsed(found.name, found.metadata["parse"], value)
            elif key.lower() not in SPARKS_OWN:
                raise InvalidOption(_unknown(key, value))
        options = cls(**values)
        if options.url is not None:
            from django_pgqueue.spark import database  # noqa: PLC0415 -- most reads are described without psycopg

            database.refuse_password(options.url)
        try:
            chosen(options.table, options.columns)
        except InvalidColumns as error:
            message = f"Option columns: {error}"
            raise InvalidOption(message) from None
        options._check_mask()
        options._check_order("finished_from", "finished_to")
        options._check_order("from_transaction", "to_transaction")
        return options

    def _check_order(self, first: str, end: str) -> None:
        begins, ends = getattr(self, first), getattr(self, end)
        if begins is not None and ends is not None and begins > ends:
            message = (
                f"Option {camel_case(first)} is {begins}, after {camel_case(end)}, which is {ends}: no row is between "
                "them. Exchange the two."
            )
            raise InvalidOption(message)

    def _check_mask(self) -> None:
        texts = [field.name for field in TABLES[self.table].fields if field.dataType == TEXT]
        if strange := [name for name in self.mask if name not in texts]:
            message = f"Option mask: {self.table} has no column of text {strange[0]!r}. It has {', '.join(texts)}."
            raise InvalidOption(message)

    @classmethod
    def names(cls) -> list[str]:
        return [camel_case(field.name) for field in fields(cls)]

    @property
    def partitions_at_most(self) -> int:
        return min(self.max_connections, self.num_partitions or self.max_connections)


def camel_case(name: str) -> str:
    """Returns an option's name as Spark writes it.

    >>> camel_case("max_connections")
    'maxConnections'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _parsed(name: str, parse: Callable[[str], Any], value: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        # The value of a URL is not shown, because it may contain a secret.
        shown = "" if name in ("url", "credentials") else f" is {value!r}, and"
        message = f"Option {camel_case(name)}{shown} must be {error}."
        raise InvalidOption(message) from None


def _unknown(key: str, value: str) -> str:
    """Returns the error text, without the value of a name that nobody knows: it may be a password."""
    if key.lower() == REMOVED.lower():
        return (
            f"Option {REMOVED} is {value!r}, and there is no such option any more: Spark applied the filters of one "
            "query to the next one on the same DataFrame, which then lacked rows. Leave it out, and write the "
            """condition in SQL: option("where", "status = 'failed'")."""
        )
    lowered = {name.lower(): name for name in PipelineOptions.names()}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f" Did you mean {lowered[near[0]]}?" if near else ""
    return f"Unknown option {key!r}.{hint} The options are {', '.join(PipelineOptions.names())}."
