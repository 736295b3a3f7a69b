"""Which commits the rows of a table come from.

Delta's restore puts the files of an earlier version back, and leaves the marks of applications, such as the position,
where they are.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from django_pgqueue.spark.lake.place import LOG

if TYPE_CHECKING:
    from django_pgqueue.spark.lake.place import Place


def mark_of_rows(place: Place, table: DeltaTable, mark: str) -> int | None:
    """Returns how far the rows of a table have come: the version of an application in the last commit that they come
    from.  None: there is none, or nobody can know.  Reads the commits since then: one, or a few.
    """
    found = table.transaction_version(mark)
    return None if found is None else _mark_at(place, table.version(), mark, found)


def last_whole(place: Place, table: DeltaTable, mark: str) -> int | None:
    """Returns the last version before this one whose rows have come as far as the mark; None: the log has none."""
    wanted = table.transaction_version(mark)
    for number in range(table.version() - 1, -1, -1):
        if _commit(place, number) is None:
            break
        if _mark_at(place, number, mark, None) == wanted:
            return number
    return None


def _mark_at(place: Place, number: int, mark: str, unsaid: int | None) -> int | None:
    """Follows the rows of a version back to the last commit with this mark; ``unsaid`` if the log begins later."""
    restored = False
    while number >= 0:
        if (made := _commit(place, number)) is None:
            return _of_snapshot(place, number, mark) if restored else unsaid
        about, marks = made
        if mark in marks:
            return marks[mark]
        number -= 1
        if about.get("operation") == "RESTORE":
            version = str(about.get("operationParameters", {}).get("version"))  # none: it was restored to a time
            if not version.isdecimal():
                return None
            number, restored = min(number, int(version)), True
    return None


def _of_snapshot(place: Place, number: int, mark: str) -> int | None:
    """Returns the mark of a version whose commit the log has no more, but perhaps a checkpoint."""
    with suppress(DeltaError):
        return DeltaTable(place.url, version=number, storage_options=dict(place.options)).transaction_version(mark)
    return None


def _commit(place: Place, number: int) -> tuple[dict[str, Any], dict[str, int]] | None:
    """Returns what made a version, and its marks; None: the log no longer has it.  DeltaTable.history finds nothing in
    a folder with a % or a space.
    """
    about, marks = {}, {}
    with suppress(FileNotFoundError), place.files.open_input_stream(f"{LOG}/{number:020d}.json") as file:
        for line in bytes(file.readall()).splitlines():
            if line.startswith((b'{"commitInfo"', b'{"txn"')):
                action = json.loads(line)
                about.update(action.get("commitInfo", {}))
                if "txn" in action:
                    marks[action["txn"]["appId"]] = int(action["txn"]["version"])
        return about, marks
    return None
