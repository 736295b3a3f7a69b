"""Merges small files, and deletes the files that killed runs and merges have left behind."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.delta import CommitFailedError, DeltaError
from django_pgqueue.spark.lake.errors import LakeConflict, LakeError
from django_pgqueue.spark.lake.lake import ATTEMPTS_AT_A_COMMIT

if TYPE_CHECKING:
    from django_pgqueue.spark.lake.lake import Lake

SMALL_BYTES = 64 * 1024 * 1024
FILES_OF_A_DAY = 8
KEPT_HOURS = 168
"""Time for which a reader may use a version, and a run its files without a commit."""


def compact(lake: Lake, *, most: int = FILES_OF_A_DAY) -> int:
    """Merges the small files of each day that has more than ``most`` of them.  Returns how many it replaced."""
    version = lake.version()
    small = Counter(file.date for file in version.files() if file.bytes < SMALL_BYTES)
    days = sorted(day.isoformat() for day, files in small.items() if files > most)
    if not days:
        return 0
    try:
        done = version.table.optimize.compact([("date", "in", days)], target_size=2 * SMALL_BYTES)
    except CommitFailedError:
        return 0  # rows were deleted meanwhile; the next run looks again
    place = lake.place / "attempts"
    place.sync(*(file.path for file in lake.version().files() if file.date.isoformat() in days))
    place.sync_log(version.number + 1)
    return int(done["numFilesRemoved"])


def vacuum(lake: Lake, *, kept_hours: int = KEPT_HOURS) -> int:
    """Deletes old files that no commit of this time names.  Returns how many."""
    table = lake.version().table
    clear = partial(table.vacuum, kept_hours, enforce_retention_duration=False, full=True)
    # A vacuum that deletes nothing makes two commits too.
    return len(clear(dry_run=False)) if clear(dry_run=True) else 0


def erase(lake: Lake, condition: str) -> int:
    """Deletes the rows that fulfil a condition in SQL, then the files that had them.  Older versions are gone too."""
    for attempt in range(ATTEMPTS_AT_A_COMMIT):
        version = lake.version()
        try:
            done = version.table.delete(condition)
            break
        except CommitFailedError as error:  # an export has come first
            if attempt + 1 == ATTEMPTS_AT_A_COMMIT:
                message = f"Other processes have written {lake.root} all the time. Nothing was erased: run it again."
                raise LakeConflict(message) from error
        except DeltaError as error:
            message = f"The condition {condition!r} cannot be used: {error}"
            raise LakeError(message) from error
    place = lake.place / "attempts"
    place.sync(*(file.path for file in lake.version().files()))
    place.sync_log(version.number + 1)
    # Not in full: files without a commit may belong to a run that goes on.
    lake.version().table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    return int(done["num_deleted_rows"])
