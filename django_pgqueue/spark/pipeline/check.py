"""Looks for each file that the lake's tables name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark.lake import Lake, LakeError
from django_pgqueue.spark.lake.lake import files_of
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

SHOWN = 3


def check(spark: SparkSession, path: str | os.PathLike[str]) -> int:
    """Returns how many files the lake has.  Raises an error that names those that are gone, or have another size."""
    lake = Lake.open(spark, path)
    files = [(name, file) for name in SCHEMAS if (table := lake.table(name)) for file in files_of(table)]
    wrong = []
    for name in SCHEMAS:
        known = {file.path: file.bytes for table, file in files if table == name}
        sizes = (lake.place / name).sizes(list(known))
        wrong += [f"{name}/{path}" for (path, size), found in zip(known.items(), sizes, strict=True) if found != size]
    if wrong:
        more = f", and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        message = (
            f"{len(wrong):,} of the {len(files):,} files of {lake.root} are gone, or have another size: "
            f"{', '.join(wrong[:SHOWN])}{more}. Restore them from a backup of the lake, or export into a new folder."
        )
        raise LakeError(message)
    return len(files)
