"""Looks for each file that the lake's manifest names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark.lake import Lake, LakeError

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

SHOWN = 3


def check(spark: SparkSession, path: str | os.PathLike[str]) -> int:
    """Returns how many files the lake has.  Raises an error that names those that are gone, or have another size."""
    lake = Lake.open(spark, path)
    tables = lake.manifest().tables
    there = {entry.path: entry.bytes for table in tables for entry in lake.files.walk(table)}
    files = [file for named in tables.values() for file in named]
    wrong = [file.path for file in files if there.get(file.path) != file.bytes]
    if wrong:
        more = f", and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        message = (
            f"{len(wrong):,} of the {len(files):,} files of {lake.root} are gone, or have another size: "
            f"{', '.join(wrong[:SHOWN])}{more}. Restore them from a backup of the lake, or export into a new folder."
        )
        raise LakeError(message)
    return len(files)
