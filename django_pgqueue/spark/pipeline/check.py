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
    number, wrong = 0, []
    for name in SCHEMAS:
        files = files_of(table) if (table := lake.table(name)) else []
        number += len(files)
        sizes = (lake.place / name).sizes([file.path for file in files])
        wrong += [f"{name}/{file.path}" for file, size in zip(files, sizes, strict=True) if size != file.bytes]
    if wrong:
        more = f", and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        message = (
            f"{len(wrong):,} of the {number:,} files of {lake.root} are gone, or have another size: "
            f"{', '.join(wrong[:SHOWN])}{more}. Restore them from a backup of the lake, or export into a new folder."
        )
        raise LakeError(message)
    return number
