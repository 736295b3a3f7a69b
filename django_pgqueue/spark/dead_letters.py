"""Rows that cannot become messages, put aside as lines of JSON.

Tasks send these rows to the driver, which writes one file for each batch or micro-batch.  The file has the same name in
every try, so a replay replaces it and does not add one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark.errors import InvalidOption, InvalidRow

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from django_pgqueue.spark.rows import Rejected

MOST = 10_000
"""Limit of one task, because the rows travel through the driver.  More of them mean a wrong DataFrame."""


def check(rejected: Sequence[Rejected]) -> None:
    if len(rejected) > MOST:
        message = f"More than {MOST:,} rows of one task cannot become messages. The first is {rejected[0]}"
        raise InvalidRow(message)


def written_down(rejected: Sequence[Rejected], place: str) -> tuple[str, ...]:
    return tuple(
        json.dumps(
            {"reason": row.reason, "place": f"{place}, row {row.row}", "row": row.values},
            default=str,
            ensure_ascii=False,
        )
        for row in rejected
    )


def keep(path: str, batch: uuid.UUID, lines: Sequence[str]) -> None:
    """Writes the file as a whole or not at all; writes none when there are no lines."""
    if not lines:
        return
    files, folder = _folder(path)
    target = f"{folder}/{batch}.json"
    temporary = f"{folder}/.{batch}.tmp"
    files.create_dir(folder, recursive=True)
    try:
        with files.open_output_stream(temporary) as stream:
            stream.write("".join(f"{line}\n" for line in lines).encode())
        files.move(temporary, target)
    except BaseException:
        with suppress(OSError):
            files.delete_file(temporary)  # it may be what fills the disk
        raise


def forget(path: str, batch: uuid.UUID) -> None:
    """Deletes the file of an earlier try whose rows have been mended since, if there is one and if that is allowed."""
    files, folder = _folder(path)
    with suppress(OSError):
        files.delete_file(f"{folder}/{batch}.json")


def _folder(path: str) -> tuple[Any, str]:
    from pyarrow import ArrowException, fs  # noqa: PLC0415 -- needed only when rows are put aside

    try:
        files, folder = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    except (ArrowException, ValueError) as error:
        message = f"Option deadLetterPath: {path!r} cannot be used: {error}"
        raise InvalidOption(message) from error
    return files, folder.rstrip("/")
