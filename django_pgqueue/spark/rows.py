"""Checks the rows of a DataFrame, and turns them into lines of COPY for the staging table.

Arrow checks a column at a time.  Python parses only JSON that is nested or has escapes, for values that PostgreSQL
would refuse, or would return changed: a refused row would break the statement, and the error would not show which one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from django_pgqueue.spark.messages import NAMES
from django_pgqueue.spark.staging import STAGED
from django_pgqueue.spark.tasks import EVERY, DeclaredTask
from django_pgqueue.values.limits import (
    CONTROL_CHARACTER,
    MAX_MAX_ATTEMPTS,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    MIN_PRIORITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django_pgqueue.spark.staging import Lines

MAX_BYTES = 64 * 2**20
"""Larger batches are halved: a column of text has room for 2 GB."""
RAW = DeclaredTask(max_attempts=5)
SETTINGS = {
    "queue": pa.string(),
    "priority": pa.int64(),
    "max_attempts": pa.int64(),
    "channel": pa.string(),
    "headers": pa.string(),
}
NULL = "\\N"
ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
LARGE_NUMBER = re.compile(r"\d[eE]\+?\d{3}|\d{309}")
MAX_DECIMALS = 16_383
"""Of PostgreSQL's numeric, which jsonb keeps numbers in."""
MANY_DECIMALS = re.compile(r"\.\d{1000}|[eE][+-]?0*\d{4}")
STRING = r'"[^"\\\x00-\x1f]*"'
SCALAR = rf"(?:{STRING}|-?(?:0|[1-9][0-9]{{0,17}})(?:\.[0-9]{{1,17}})?|true|false|null)"
LIST = rf"\[ *(?:{SCALAR}(?: *, *{SCALAR})*)? *\]"
OBJECT = rf"\{{ *(?:{STRING} *: *{SCALAR}(?: *, *{STRING} *: *{SCALAR})*)? *\}}"
PLAIN: dict[type | None, str] = {
    list: rf"\A{LIST}\z",
    dict: rf"\A{OBJECT}\z",
    None: rf"\A(?:{LIST}|{OBJECT}|{SCALAR})\z",
}
"""JSON without nesting and escapes: PostgreSQL certainly accepts it, so it need not be parsed here."""


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

    def lines(self, batch: pa.RecordBatch, prefix: str) -> Iterator[Lines]:
        """Yields the fit rows as lines of COPY that begin with ``prefix``, and puts the others into ``rejected``."""
        if batch.nbytes > MAX_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.lines(batch.slice(0, half), prefix)
            yield from self.lines(batch.slice(half), prefix)
            return
        rows = Rows(batch, self.tasks, self.max_content_bytes)
        staged = rows.staged()
        for number, reason in sorted(rows.unfit.items()):
            values = {name: column[number].as_py() for name, column in rows.columns.items()}
            self.rejected.append(Rejected(row=self.seen + number, reason=reason, values=values))
        self.seen += batch.num_rows
        if fit := batch.num_rows - len(rows.unfit):
            words = pc.binary_join_element_wise(*map(_word, staged), "\t")
            yield fit, _bytes(pc.binary_join_element_wise(prefix, words, "\n", ""))


class Rows:
    """The rows of one batch."""

    def __init__(self, batch: pa.RecordBatch, tasks: Mapping[str, DeclaredTask], max_content_bytes: int) -> None:
        self.number = batch.num_rows
        self.tasks = tasks
        self.max_content_bytes = max_content_bytes
        self.unfit: dict[int, str] = {}
        """The first reason of each row that cannot become a message."""
        self.columns = {name: self._text(name, _simple(batch.column(name))) for name in batch.schema.names}

    def staged(self) -> list[pa.Array | None]:
        """Returns the columns of ``STAGED`` for the fit rows; None: the column has no values."""
        declared = self._declared()
        for name in NAMES:
            self._check_name(name)
        self._check_number("priority", MIN_PRIORITY, MAX_PRIORITY)
        self._check_number("max_attempts", 1, MAX_MAX_ATTEMPTS)
        found = {**self.columns, "content": self._content(), "headers": self._json("headers", dict)}
        for name, values in declared.items():
            given = found.get(name)
            found[name] = values if given is None else pc.coalesce(given.cast(values.type), values)
        columns = [found.get(name) for name in STAGED]
        if not self.unfit:
            return columns
        fit = pa.array([row not in self.unfit for row in range(self.number)])
        return [None if column is None else column.filter(fit) for column in columns]

    def _text(self, name: str, column: pa.Array) -> pa.Array:
        """Returns the column in UTF-8.  Spark keeps text that is not, and such a row shows its bytes as ``\\xff``."""
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            given = column.cast(pa.binary())
            texts = [None if text is None else text.decode(errors="backslashreplace") for text in given.to_pylist()]
            readable = pa.array(texts, pa.string())
            self._refuse(pc.not_equal(given, readable.cast(pa.binary())), f"{name} is not text in UTF-8")
            return readable
        return column

    def _declared(self) -> dict[str, pa.Array]:
        """Returns the settings of the rows' tasks, and checks the tasks."""
        task = self.columns.get("task", pa.nulls(self.number, pa.string()))
        coded = task.dictionary_encode()
        settings = []
        for name in coded.dictionary.to_pylist():
            found = self.tasks.get(name, self.tasks.get(EVERY))
            if found is None:
                allowed = ", ".join(sorted(self.tasks))
                self._refuse(pc.equal(task, name), f"task {name!r} is not in the option tasks: {allowed}")
            settings.append(found or RAW)
        self._check_name("task")
        codes = coded.indices.fill_null(len(settings))
        settings.append(RAW)
        return {
            name: pa.array([getattr(one, name) for one in settings], kind).take(codes)
            for name, kind in SETTINGS.items()
        }

    def _check_name(self, name: str) -> None:
        if (column := self.columns.get(name)) is not None:
            size = pc.binary_length(column)
            wrong = pc.or_(pc.equal(size, 0), pc.greater(size, MAX_NAME_BYTES))
            wrong = pc.or_(wrong, pc.match_substring_regex(column, CONTROL_CHARACTER))
            self._refuse(wrong, f"{name} is text of 1 to {MAX_NAME_BYTES} bytes in UTF-8, without control characters")

    def _check_number(self, name: str, least: int, most: int) -> None:
        if (column := self.columns.get(name)) is not None:
            for row in _where(pc.or_(pc.less(column, least), pc.greater(column, most))):
                self.unfit.setdefault(row, f"{name} is {column[row]}, and goes from {least} to {most:,}")

    def _content(self) -> pa.Array:
        content, task = self._json("content", None), self.columns.get("task")
        if content is None:
            content = pa.nulls(self.number, pa.string())
        if task is not None:
            called = pc.if_else(task.is_valid(), self._call(), pa.scalar(None, pa.string()))
            content = pc.coalesce(self._completed(content, task), called)
        self._refuse(content.is_null(), "the row has neither task nor content")
        return content

    def _call(self) -> pa.Array:
        """Returns the content that args and kwargs make."""
        args, kwargs = self._json("args", list), self._json("kwargs", dict)
        args = pa.repeat("[]", self.number) if args is None else args.fill_null("[]")
        kwargs = "{}" if kwargs is None else kwargs.fill_null("{}")
        content = pc.binary_join_element_wise('{"args":', args, ',"kwargs":', kwargs, "}", "")
        self._check_size("args and kwargs", content)
        return content

    def _completed(self, content: pa.Array, task: pa.Array) -> pa.Array:
        """Returns the contents, those of tasks with both args and kwargs."""
        given = [row for row in _where(pc.and_(content.is_valid(), task.is_valid())) if row not in self.unfit]
        if not given:
            return content
        texts = content.to_pylist()
        for row in given:
            value = json.loads(texts[row])
            shaped = isinstance(value, dict) and value.keys() <= {"args", "kwargs"}
            if not (shaped and isinstance(value.get("args", []), list) and isinstance(value.get("kwargs", {}), dict)):
                self.unfit[row] = 'the content of a task is {"args": [...], "kwargs": {...}}'
            elif len(value) < 2:
                texts[row] = json.dumps({"args": [], "kwargs": {}, **value}, ensure_ascii=False)
        return pa.array(texts, pa.string())

    def _json(self, name: str, kind: type | None) -> pa.Array | None:
        if (column := self.columns.get(name)) is None:
            return None
        odd = pc.invert(pc.match_substring_regex(column, PLAIN[kind]))
        for row, text in zip(_where(odd), column.filter(odd).to_pylist(), strict=True):
            try:
                check_json(name, text, kind)
            except Unfit as unfit:
                self.unfit.setdefault(row, str(unfit))
        self._check_size(name, column)
        return column

    def _check_size(self, name: str, column: pa.Array) -> None:
        sizes = pc.binary_length(column)
        for row in _where(pc.greater(sizes, self.max_content_bytes)):
            reason = (
                f"{name} has {sizes[row].as_py():,} bytes and may have {self.max_content_bytes:,}: store the data "
                "where it belongs and pass its key, or raise the option maxContentBytes"
            )
            self.unfit.setdefault(row, reason)

    def _refuse(self, wrong: pa.BooleanArray, reason: str) -> None:
        for row in _where(wrong):
            self.unfit.setdefault(row, reason)


def check_json(name: str, text: str, kind: type | None) -> None:
    """Raises an error unless it is JSON of this kind, and PostgreSQL would accept it and return it unchanged."""
    try:
        value = DECODER.decode(text)
        if "\\u" in text or LARGE_NUMBER.search(text):
            _check_deeply(value)
        if MANY_DECIMALS.search(text):
            json.loads(text, parse_float=_check_decimals)
    except Unfit as unfit:
        raise Unfit(f"{name} {unfit}") from None
    except RecursionError:
        raise Unfit(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise Unfit(f"{name} is not JSON: {error}") from None
    if kind is not None and not isinstance(value, kind):
        raise Unfit(f"{name} is {_shown(text)}, and must be a JSON {'array' if kind is list else 'object'}")


def _constant(word: str) -> Any:
    raise Unfit(f"has {word}, which JSON cannot represent")


DECODER = json.JSONDecoder(parse_constant=_constant)


def _check_decimals(number: str) -> None:
    digits, _, exponent = number.lower().partition("e")
    decimals = len(digits.partition(".")[2]) - int(exponent or 0)
    if not -1_000_000 < decimals <= MAX_DECIMALS:  # a zero may have any exponent in Python
        raise Unfit("has a number that PostgreSQL cannot store")


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


def _simple(column: pa.Array) -> pa.Array:
    """Returns a time in epoch milliseconds, and a text with the short offsets that COPY's lines have."""
    if pa.types.is_timestamp(column.type):
        # Spark sends its session's time zone, in which Arrow cannot floor the hour that a clock shows twice.
        times = pc.floor_temporal(column.cast(pa.timestamp("us", "UTC")), unit="millisecond")
        return times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _where(mask: pa.BooleanArray) -> list[int]:
    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows


def _word(column: pa.Array | None) -> pa.Array | str:
    """Returns the values as COPY expects them."""
    if column is None:
        return NULL
    if not pa.types.is_string(column.type):
        return column.cast(pa.string()).fill_null(NULL)
    for character, word in ESCAPES:
        if pc.any(pc.match_substring(column, character)).as_py():
            column = pc.replace_substring(column, character, word)
    return column.fill_null(NULL)


def _bytes(column: pa.Array) -> memoryview:
    """Returns the concatenated texts of a column without nulls, as Arrow has them in memory."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
