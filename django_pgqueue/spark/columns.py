"""Converts a batch of rows at once when all of them are certainly fit: several times faster than row by row.

``lines`` returns the text of COPY, or None where a row of the batch may be unfit or is of a rarer kind.  Then
``rows.py`` checks each row and explains what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from django_pgqueue.spark.messages import NAMES, DeclaredTask
from django_pgqueue.spark.rows import RAW, STAGED, Unfit, escaped, milliseconds, read_json
from django_pgqueue.spark.tasks import EVERY
from django_pgqueue.values.limits import (
    CONTROL_CHARACTER,
    MAX_MAX_ATTEMPTS,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    MIN_PRIORITY,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 64 * 2**20
"""Larger batches are checked row by row: a column of text has room for 2 GB."""
NULL = "\\N"
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


class NotObvious(Exception):
    """A row of the batch may be unfit."""


def lines(batch: pa.RecordBatch, prefix: str, *, tasks: Mapping[str, DeclaredTask], most: int) -> memoryview | None:
    """Returns the rows as lines of COPY that begin with ``prefix``; a content has at most ``most`` bytes."""
    if batch.num_rows == 0 or batch.nbytes > MAX_BYTES:
        return None
    try:
        staged = _staged(_given(batch), batch.num_rows, tasks, most)
    except NotObvious:
        return None
    words = [_word(staged[name]) for name in STAGED]
    return _bytes(pc.binary_join_element_wise(prefix, pc.binary_join_element_wise(*words, "\t"), "\n", ""))


def _given(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Returns the columns that have at least one value."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    return {name: milliseconds(column) for name, column in columns.items() if column.null_count < len(column)}


def _staged(given: dict[str, pa.Array], number: int, tasks: Mapping[str, DeclaredTask], most: int) -> dict[str, Any]:
    """Returns the columns of ``STAGED``: an array, or the value of all rows."""
    for name in NAMES:
        _check_name(given.get(name))
    task = given.get("task")
    declared = _declared(task, tasks)
    return {
        "dequeue_at": given.get("dequeue_at"),
        "max_attempts": _number(given.get("max_attempts"), declared["max_attempts"], 1, MAX_MAX_ATTEMPTS),
        "priority": _number(given.get("priority"), declared["priority"], MIN_PRIORITY, MAX_PRIORITY),
        "queue": _filled(given.get("queue"), declared["queue"]),
        "channel": given.get("channel"),
        "task": task,
        "unique_key": given.get("unique_key"),
        "content": _content(given, number, most),
        "headers": _json(given.get("headers"), dict, most),
    }


def _declared(task: pa.Array | None, tasks: Mapping[str, DeclaredTask]) -> dict[str, Any]:
    """Returns the settings of the rows' tasks, if all tasks have the same ones."""
    says: DeclaredTask | None = RAW
    if task is not None:
        found = {tasks.get(name, tasks.get(EVERY)) for name in pc.unique(task).to_pylist()}
        says = found.pop()
        if task.null_count or found:
            raise NotObvious
        _check_name(task)
    if says is None:
        raise NotObvious
    return {"queue": says.queue, "priority": says.priority, "max_attempts": says.max_attempts}


def _check_name(column: pa.Array | None) -> None:
    if column is None:
        return
    lengths = pc.min_max(pc.binary_length(column)).as_py()
    unprintable = pc.any(pc.match_substring_regex(column, CONTROL_CHARACTER)).as_py()
    if not 1 <= lengths["min"] <= lengths["max"] <= MAX_NAME_BYTES or unprintable:
        raise NotObvious


def _number(column: pa.Array | None, otherwise: int | None, least: int, most: int) -> Any:
    if column is None:
        return otherwise
    ends = pc.min_max(column).as_py()
    if not least <= ends["min"] <= ends["max"] <= most:
        raise NotObvious
    return _filled(column.cast(pa.int64()), otherwise)


def _filled(column: pa.Array | None, otherwise: Any) -> Any:
    if column is None or otherwise is None:
        return otherwise if column is None else column
    return column.fill_null(otherwise)


def _content(given: dict[str, pa.Array], number: int, most: int) -> pa.Array:
    if "task" not in given:
        content = given.get("content")
        if content is None or content.null_count:
            raise NotObvious
        return _json(content, None, most)
    if "content" in given:  # of a task: rows.py checks its shape row by row
        raise NotObvious
    args, kwargs = _json(given.get("args"), list, most), _json(given.get("kwargs"), dict, most)
    args, kwargs = _filled(args, "[]"), _filled(kwargs, "{}")
    if args is None and kwargs is None:
        return pa.repeat('{"args":[],"kwargs":{}}', number)
    words = ("[]" if args is None else args, "{}" if kwargs is None else kwargs)
    content = pc.binary_join_element_wise('{"args":', words[0], ',"kwargs":', words[1], "}", "")
    return _small(content, most)


def _json(column: pa.Array | None, kind: type | None, most: int) -> pa.Array | None:
    if column is None:
        return None
    odd = column.filter(pc.invert(pc.match_substring_regex(column, PLAIN[kind])))
    try:
        values = [read_json(text) for text in odd.to_pylist()]
    except (Unfit, ValueError, RecursionError):
        raise NotObvious from None
    if kind is not None and not all(isinstance(value, kind) for value in values):
        raise NotObvious
    return _small(column, most)


def _small(column: pa.Array, most: int) -> pa.Array:
    if pc.max(pc.binary_length(column)).as_py() > most:
        raise NotObvious
    return column


def _has(column: pa.Array, part: str) -> bool:
    return bool(pc.any(pc.match_substring(column, part)).as_py())


def _word(value: Any) -> Any:
    """Returns the value as COPY expects it."""
    if value is None:
        return NULL
    if not isinstance(value, pa.Array):
        return escaped(value)
    if not pa.types.is_string(value.type):
        return value.cast(pa.string()).fill_null(NULL)
    for character, word in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        if _has(value, character):
            value = pc.replace_substring(value, character, word)
    return value.fill_null(NULL)


def _bytes(column: pa.Array) -> memoryview:
    """Returns the concatenated texts of a column without nulls, as Arrow has them in memory."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]]
