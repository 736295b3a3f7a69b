"""Merges small files, and deletes the files that killed runs and merges have left behind."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, QueryBuilder, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from django_pgqueue.spark.errors import plain
from django_pgqueue.spark.lake.errors import LakeConflict, LakeError
from django_pgqueue.spark.lake.lake import ATTEMPTS_AT_A_COMMIT, files_of
from django_pgqueue.spark.lake.schema import HISTORY, SCHEMAS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from deltalake import DeltaTable

    from django_pgqueue.spark.lake.lake import Lake

Result = TypeVar("Result")
SMALL_BYTES = 64 * 1024 * 1024
FILES_OF_A_DAY = 8
MERGING = "pgqueue.merging_until"
MERGE = {"written_by": "merge"}
LEASE_SECONDS = 600
"""For which a merge that was killed keeps others from merging."""
MERGED_BYTES = 256 * 1024 * 1024
"""One commit merges whole days, until about so much: merging those of a first export takes minutes."""
CHANGE_FEED = "delta.enableChangeDataFeed"
KEPT_HOURS = 168
"""Time for which a reader may use a version, and a run its files without a commit."""


def compact(lake: Lake, *, most: int = FILES_OF_A_DAY) -> int:
    """Merges the small files of each day that has more than ``most`` of them.  Returns how many it replaced."""
    return sum(_compacted(lake, name, most) for name in HISTORY)


def _compacted(lake: Lake, name: str, most: int) -> int:
    table = lake.table(name)
    small: dict[dt.date, list[int]] = defaultdict(list)
    for file in files_of(table) if table else []:
        if file.bytes < SMALL_BYTES:
            small[file.date].append(file.bytes)
    crowded = {day: sum(sizes) for day, sizes in sorted(small.items()) if len(sizes) > most}
    parts = groupby(zip(accumulate(crowded.values()), crowded, strict=True), lambda pair: pair[0] // MERGED_BYTES)
    return sum(_merged(lake, name, [day for _, day in part]) for _, part in parts)


def _merged(lake: Lake, name: str, days: list[dt.date]) -> int:
    """Merges the small files of some days in one commit, unless another process merges: the next run looks again."""
    until = int((time.time() + LEASE_SECONDS) * 1000)
    if (table := _taken(lake, name, until)) is None:
        return 0
    before, chosen = table.version(), [("date", "in", [str(day) for day in days])]
    try:
        done = table.optimize.compact(chosen, target_size=2 * SMALL_BYTES)
    except DeltaError:
        if not is_overtaken(lake, name, before):
            raise
        return 0  # rows were deleted meanwhile, perhaps with the files that had them, or another process merges
    finally:
        _released(lake, name, until)
    lake.sync(name, before, days[0], days[-1])
    return int(done["numFilesRemoved"])


def _taken(lake: Lake, name: str, until: int) -> DeltaTable | None:
    """Records until when (epoch ms) this process may merge, and returns the table; None: another process merges.
    deltalake does not notice that two have merged the same files: all their rows would be there twice.
    """
    table = lake.opened(name)
    known, marks = table.transaction_version(MERGING) or 0, [Transaction(MERGING, until)]
    if known > time.time() * 1000:
        return None
    if known:
        # Its process may live.  deltalake refuses the commit of a merge that began before a property was changed.
        about = CommitProperties(app_transactions=marks, custom_metadata=MERGE)
        try:
            table.alter.set_table_properties({MERGING: str(until)}, raise_if_not_exists=False, commit_properties=about)
        except CommitFailedError:
            return None
        (lake.place / name).sync_log(table.version())
    elif not lake.committed(name, table, [], marks, MERGE):
        return None
    table = lake.opened(name)
    return table if table.transaction_version(MERGING) == until else None


def _released(lake: Lake, name: str, until: int) -> None:
    """Lets others merge, if the mark is still that of this process.  It would end by itself, so no error is raised."""
    with suppress(LakeError, DeltaError, OSError):
        for _ in range(ATTEMPTS_AT_A_COMMIT):
            table = lake.opened(name)
            is_ours = table.transaction_version(MERGING) == until
            if not is_ours or lake.committed(name, table, [], [Transaction(MERGING, 0)], MERGE):
                return


def vacuum(lake: Lake, *, kept_hours: int = KEPT_HOURS) -> int:
    """Deletes old files that no commit of this time names.  Returns how many."""
    return sum(_cleared(lake, name, kept_hours, full=True) for name in SCHEMAS if lake.has(name))


def _cleared(lake: Lake, name: str, kept_hours: int, *, full: bool) -> int:
    def cleared(table: DeltaTable) -> int:
        clear = partial(table.vacuum, kept_hours, enforce_retention_duration=False, full=full)
        # A vacuum that deletes nothing makes two commits too.
        return len(clear(dry_run=False)) if clear(dry_run=True) else 0

    return unless_overtaken(lake, name, cleared, (CommitFailedError,))


def erase(lake: Lake, condition: str) -> int:
    """Deletes the attempts that fulfil a condition in SQL, and before them the steps and approvals of their messages;
    then the files that had them.  Older versions are gone too.
    """
    for name in HISTORY:
        _refuse_change_feed(lake, name)
    query = f"select id, date, message_id from attempts where {condition}"  # noqa: S608 -- who asks may do all

    def selected(attempts: DeltaTable) -> pa.Table:
        return pa.table(QueryBuilder().register("attempts", attempts).execute(query))

    try:
        gone = unless_overtaken(lake, "attempts", selected)
    except (DeltaError, pa.ArrowException) as error:
        message = f"The condition {condition!r} cannot be used: {plain(error)}"
        raise LakeError(message) from error
    messages = gone.group_by("message_id").aggregate([])
    for name in HISTORY[1:]:
        erase_rows(lake, name, messages)
    return erase_rows(lake, "attempts", gone.drop_columns("message_id"))


def _refuse_change_feed(lake: Lake, name: str) -> None:
    """Raises an error if Delta keeps what is deleted from a table, as another program has set it: in files apart."""
    table = lake.table(name)
    if table is not None and table.metadata().configuration.get(CHANGE_FEED, "").lower() == "true":
        message = (
            f"{lake.root}/{name} has Delta's change data feed, which would keep a copy of the erased rows. Nothing was "
            f"erased. Set {CHANGE_FEED} to false with the program that has set it, delete the folder _change_data "
            "there, and erase again."
        )
        raise LakeError(message)


def erase_rows(lake: Lake, name: str, gone: pa.Table) -> int:
    """Deletes the rows that have the same values as a row of ``gone`` in its columns."""
    if not lake.has(name):
        return 0
    same = " and ".join(f"kept.{column} = gone.{column}" for column in gone.column_names)

    def deleted(table: DeltaTable) -> tuple[int, int]:
        before = table.version()
        merging = table.merge(gone, same, source_alias="gone", target_alias="kept").when_matched_delete()
        return before, int(merging.execute()["num_target_rows_deleted"]) if gone.num_rows else 0

    before, rows = unless_overtaken(lake, name, deleted)
    lake.sync(name, before)
    # Also where a killed run has left only the files.  Not in full: those without a commit may belong to a run.
    _cleared(lake, name, 0, full=False)
    return rows


def unless_overtaken(
    lake: Lake,
    name: str,
    work: Callable[[DeltaTable], Result],
    expected: tuple[type[Exception], ...] = (DeltaError, pa.ArrowException),
) -> Result:
    """Works with a table, and once more if another process has committed meanwhile, or even deleted what was read."""
    for _ in range(ATTEMPTS_AT_A_COMMIT):
        table = lake.opened(name)
        before = table.version()
        try:
            return work(table)
        except expected:
            if not is_overtaken(lake, name, before):
                raise
    message = f"Other processes have written {lake.root} all the time. Not all was erased: run it again."
    raise LakeConflict(message)


def is_overtaken(lake: Lake, name: str, version: int) -> bool:
    return lake.opened(name).version() > version
