"""Lets a lake go on with a database that was renamed, upgraded by pg_upgrade or restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark.lake import Lake, LakeError, read_lake
from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.lake.schema import HISTORY
from django_pgqueue.spark.lake.upkeep import erase_rows
from django_pgqueue.spark.pipeline.export import check as check_options
from django_pgqueue.spark.pipeline.overlap import Overlap, overlap
from django_pgqueue.spark.pipeline.source_database import origin_of
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.snapshot import make_durable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import Version


def adopt(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Overlap:
    """Makes this database the source of the lake, if the lake has what both should have.  Exports then go on where the
    database has its first attempt that the lake lacks.

    Raises a LakeError when the two have no attempt in common, or different attempts with one id.
    """
    progress, options = progress or Progress(), options or {}
    check_options(options)
    lake = Lake.open(spark, path)
    with origin_of(lake, options) as origin:
        before, horizon = lake.version(), origin.horizon()
        for table in HISTORY[1:]:
            lake.refuse_restored(before, table)
        progress.step("comparing the lake with the database")
        is_same_server = before.source == origin.identity()
        recorded, _ = (is_same_server and origin.recorded(before.lake_id)) or (0, None)
        # What came before the record of a server that went back is not new: it was erased from the lake.
        found = overlap(lake, before, options, position=recorded if recorded < before.position else 0)
        check(found)
        position = horizon if found.first_new is None else min(horizon, found.first_new)
        if found.last_same >= position and is_same_server:
            message = f"The lake lacks attempts of transactions that came before those of others. {found.remedy}"
            raise LakeError(message)
        if found.last_same >= position:
            message = (
                f"Transaction {position} wrote attempts that the lake lacks, and transaction {found.last_same} others "
                "that it has: the history was restored from a dump, and new attempts were added to it. Mark those of "
                "before the restore as old (set their transaction_id to 0 in pgqueue_attempt), then run this again."
            )
            raise LakeError(message)
        for table in HISTORY[1:]:
            if (gone := unended(lake, table, before)).num_rows:
                erase_rows(lake, table, gone)
        make_durable(origin.connection)
        lake.adopt(before, origin.identity(), position)
    return found


def unended(lake: Lake, table: str, version: Version) -> pa.Table:
    """Returns the messages of a killed run, which had added their steps and not their attempts."""
    ended = read_files(lake, "attempts", version.files(), ["message_id", "final"]).where("final")
    rows = read_lake(lake.spark, lake.root, table, columns=["message_id"]).join(ended, "message_id", "left_anti")
    return rows.distinct().toArrow()


def check(found: Overlap) -> None:
    if found.different and not found.same:
        message = (
            f"{found.different:,} attempts of this database have ids that the lake has for other attempts: it is "
            "another database. Use another folder."
        )
        raise LakeError(message)
    if not found.same:
        message = (
            "The lake has no attempt of this database, so nothing shows that the lake comes from it. Use another "
            "folder, or the database that it was exported from."
        )
        raise LakeError(message)
    if gone := found.different + found.lost:
        message = f"The lake has {gone:,} attempts that this database does not have. {found.remedy}"
        raise LakeError(message)
