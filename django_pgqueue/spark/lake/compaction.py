"""Merges many small files of a day into few, because Parquet is fast when files are large."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.data_files import clear, publish, stage
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.reading import read_files

if TYPE_CHECKING:
    from django_pgqueue.spark.lake.lake import Lake
    from django_pgqueue.spark.lake.manifest import DataFile, Manifest

SMALL_BYTES = 64 * 1024 * 1024
FILES_OF_A_DAY = 8
BYTES_A_RUN = 16 * 1024**3
"""Limit of what one run rewrites; the next run continues."""


def compact(lake: Lake, run: str, *, most: int = FILES_OF_A_DAY, small_bytes: int = SMALL_BYTES) -> Manifest:
    """Rewrites the small files of each day and queue that has more than ``most`` of them.  The rows do not change."""
    before = lake.manifest()
    scattered = crowded(before, most, small_bytes)
    if not scattered:
        return before
    rows = read_files(lake, "attempts", scattered)
    total = sum(file.bytes for file in scattered)
    pieces = max(1, total // (2 * small_bytes))
    staged = stage(lake, rows.coalesce(pieces).sortWithinPartitions("finished_at", "id"), "attempts", run)
    if sum(file.rows for _, file, _ in staged) != sum(file.rows for file in scattered):
        message = "The compacted files and the files that they replace have different rows. Nothing was changed."
        raise LakeError(message)
    files = publish(lake, staged)
    clear(lake, run)
    return lake.commit(before, written_by="compact", tables=before.with_files("attempts", files, removed=scattered))


def crowded(manifest: Manifest, most: int, small_bytes: int) -> list[DataFile]:
    groups: dict[tuple[str, str], list[DataFile]] = defaultdict(list)
    for file in manifest.files("attempts"):
        if file.bytes < small_bytes:
            groups[file.date, file.queue].append(file)
    chosen: list[DataFile] = []
    for _, files in sorted(groups.items()):
        if len(files) > most and sum(file.bytes for file in chosen) < BYTES_A_RUN:
            chosen += files
    return chosen
