"""Converts rows of a DataFrame to rows of the staging table, and checks each of them.

Values that most rows share (tasks, queues) are checked once.  JSON is checked row by row, for values that PostgreSQL
would refuse, or would return changed: a refused row would break the statement, and the error would not show which one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark.messages import NAMES, DeclaredTask
from django_pgqueue.spark.tasks import EVERY
from django_pgqueue.values.limits import (
    CONTROL_CHARACTER,
    MAX_MAX_ATTEMPTS,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    MIN_PRIORITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

CHUNK = 1_000_000
LARGE_NUMBER = re.compile(r"\d[eE]\+?\d{3}|\d{309}")
RAW = DeclaredTask(max_attempts=5)
STAGED = ("dequeue_at", "max_attempts", "priority", "queue", "channel", "task", "unique_key", "content", "headers")


class Unfit(ValueError):
    """The reason why a row cannot become a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A row that cannot become a message."""

    row: int
    """The row's number in its partition, from 0."""
    reason: str
    values: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.values.items() if value is not None)
        return f"row {self.row} ({shown}): {self.reason}"


@dataclass(slots=True, kw_only=True)
class Intake:
    """Checks the rows of one partition."""

    tasks: Mapping[str, DeclaredTask]
    max_content_bytes: int
    rejected: list[Rejected] = field(default_factory=list)
    seen: int = 0
    known: dict[tuple[str, Any], str | None] = field(default_factory=dict)

    def staged(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Yields the values of ``STAGED`` for each fit row, and puts the others into ``rejected``."""
        columns = {name: milliseconds(batch.column(name)).to_pylist() for name in batch.schema.names}
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            given = dict(zip(names, values, strict=True))
            try:
                yield self._row(given)
            except Unfit as unfit:
                self.rejected.append(Rejected(row=self.seen, reason=str(unfit), values=given))
            self.seen += 1

    def _row(self, given: dict[str, Any]) -> tuple[Any, ...]:
        get = given.get
        task = get("task")
        says = RAW if task is None else self._declared(task)
        for name in NAMES:
            if (value := get(name)) is not None:
                self._check_name(name, value)
        priority, queue, attempts = get("priority"), get("queue"), get("max_attempts")
        if priority is None:
            priority = says.priority
        elif not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise Unfit(f"priority is {priority}, and goes from {MIN_PRIORITY} to {MAX_PRIORITY}")
        if attempts is None:
            attempts = says.max_attempts
        elif not 1 <= attempts <= MAX_MAX_ATTEMPTS:
            raise Unfit(f"max_attempts is {attempts}, and goes from 1 to {MAX_MAX_ATTEMPTS:,}")
        return (
            get("dequeue_at"),
            attempts,
            priority,
            says.queue if queue is None else queue,
            get("channel"),
            task,
            get("unique_key"),
            self._content(given, task),
            None if (headers := get("headers")) is None else self._json("headers", headers, dict),
        )

    def _declared(self, task: str) -> DeclaredTask:
        found = self.tasks.get(task)
        if found is not None:
            return found
        if EVERY not in self.tasks:
            allowed = ", ".join(sorted(self.tasks))
            raise Unfit(f"task {task!r} is not in the option tasks: {allowed}")
        self._check_name("task", task)
        return self.tasks[EVERY]

    def _check_name(self, name: str, value: str) -> None:
        key = (name, value)
        if key not in self.known:
            if len(self.known) > 100_000:  # unique keys are all different
                self.known.clear()
            fit = 0 < len(value.encode(errors="replace")) <= MAX_NAME_BYTES and not re.search(CONTROL_CHARACTER, value)
            self.known[key] = (
                None if fit else f"{name} is text of 1 to {MAX_NAME_BYTES} bytes in UTF-8, without control characters"
            )
        if (reason := self.known[key]) is not None:
            raise Unfit(reason)

    def _content(self, given: dict[str, Any], task: str | None) -> str:
        content = given.get("content")
        if task is None:
            if content is None:
                raise Unfit("the row has neither task nor content")
            return self._json("content", content, None)
        if content is not None:
            return self._content_of_task(content)
        args, kwargs = given.get("args"), given.get("kwargs")
        args = "[]" if args is None else self._json("args", args, list)
        kwargs = "{}" if kwargs is None else self._json("kwargs", kwargs, dict)
        content = f'{{"args":{args},"kwargs":{kwargs}}}'
        self._check_size("args and kwargs", content)
        return content

    def _content_of_task(self, content: str) -> str:
        value = self._parsed("content", content)
        shaped = isinstance(value, dict) and value.keys() <= {"args", "kwargs"}
        if not (shaped and isinstance(value.get("args", []), list) and isinstance(value.get("kwargs", {}), dict)):
            raise Unfit('the content of a task is {"args": [...], "kwargs": {...}}')
        self._check_size("content", content)
        return content if len(value) == 2 else json.dumps({"args": [], "kwargs": {}, **value}, ensure_ascii=False)

    def _json(self, name: str, text: str, kind: type | None) -> str:
        value = self._parsed(name, text)
        if kind is not None and not isinstance(value, kind):
            raise Unfit(f"{name} is {_shown(text)}, and must be a JSON {'array' if kind is list else 'object'}")
        self._check_size(name, text)
        return text

    def _parsed(self, name: str, text: str) -> Any:
        try:
            return read_json(text)
        except Unfit as unfit:
            raise Unfit(f"{name} {unfit}") from None
        except RecursionError:
            raise Unfit(f"{name} is nested too deeply") from None
        except ValueError as error:
            raise Unfit(f"{name} is not JSON: {error}") from None

    def _check_size(self, name: str, text: str) -> None:
        size = len(text) if text.isascii() else len(text.encode())
        if size > self.max_content_bytes:
            raise Unfit(
                f"{name} has {size:,} bytes and may have {self.max_content_bytes:,}: store the data where it belongs "
                "and pass its key, or raise the option maxContentBytes"
            )


def milliseconds(column: pa.Array) -> pa.Array:
    """Converts a time to epoch milliseconds; returns every other column as it is."""
    import pyarrow as pa  # noqa: PLC0415 -- an executor has it; planning does without
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_timestamp(column.type):
        return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return column


def read_json(text: str) -> Any:
    """Returns the value, if PostgreSQL would accept it and return it unchanged."""
    value = DECODER.decode(text)
    if "\\u" in text or LARGE_NUMBER.search(text):
        _check_deeply(value)
    return value


def _refuse(word: str) -> Any:
    raise Unfit(f"has {word}, which JSON cannot represent")


DECODER = json.JSONDecoder(parse_constant=_refuse)


def _check_deeply(value: Any) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise Unfit("contains the character NUL, which PostgreSQL cannot store")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise Unfit("is not valid Unicode")
    elif isinstance(value, (dict, list)):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_deeply(item)
    elif value in (float("inf"), float("-inf")):
        raise Unfit("has a number that is too large")


def copied(row: Iterable[Any]) -> str:
    """Returns a line of COPY."""
    return "\t".join("\\N" if value is None else escaped(value) for value in row) + "\n"


def chunks(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Joins lines to larger pieces, each with the number of its lines."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= CHUNK:
            yield len(held), "".join(held).encode()
            held, size = [], 0
    if held:
        yield len(held), "".join(held).encode()


def escaped(value: Any) -> str:
    text = str(value)
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
