"""The attempts of a database beside those of a lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from django_pgqueue.spark.lake import Lake, Version

COLUMNS = ("id", "message_id", "finished_at")
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    same: int
    """Attempts that both have."""
    different: int
    """Ids that both have, of different attempts."""
    lost: int
    """Attempts that only the lake has, although the database has others of their days: retention drops whole days."""
    first_lost: int | None
    """The least id of those that are different or lost."""
    last_same: int
    """The last transaction that wrote one of the same."""
    first_new: int | None
    """The first transaction that wrote an attempt that the lake lacks."""

    @property
    def remedy(self) -> str:
        """Says what happened, and what makes the lake agree with the database."""
        erase = "" if self.first_lost is None else f"qpipeline erase --where 'id >= {self.first_lost}', then "
        return (
            "A replica took over without the last transactions, or the server was restored from a backup that is older "
            "than the last export, or two servers write this lake. Nothing was written. To go on with this server: "
            f"{erase}qpipeline export --adopt. Or use another folder."
        )


def overlap(
    lake: Lake,
    version: Version,
    options: Mapping[str, str],
    *,
    since: dt.date | None = None,
    position: int = 0,
) -> Overlap:
    """Compares the days (UTC) from ``since`` on.  New is what came at ``position`` or later."""
    asked = {name: value for name, value in options.items() if name.lower() not in {"mask", "totransaction"}}
    asked["columns"] = ",".join([*COLUMNS, "transaction_id"])
    if since is not None:
        asked["finishedFrom"] = f"{since}T00:00:00+00:00"
    history = registered(lake.spark).read.format("pgqueue").options(**asked).load()
    known = read_files(lake, "attempts", version.files(since=since), COLUMNS)
    known = known.select("id", *(F.col(name).alias(f"lake_{name}") for name in COLUMNS[1:]))
    is_there, is_known = F.col("message_id").isNotNull(), F.col("lake_message_id").isNotNull()
    is_same = is_there & is_known & (F.col("message_id") == F.col("lake_message_id"))
    is_same &= F.col("finished_at") == F.col("lake_finished_at")
    is_new = ~is_known & (F.col("transaction_id") >= position)
    moment = F.unix_micros(F.coalesce("finished_at", "lake_finished_at"))
    days = (
        history.join(known, "id", "full")
        .groupBy(F.floor(moment / DAY_US).alias("day"))
        .agg(
            F.count(F.when(is_there, 1)).alias("there"),
            F.count(F.when(is_same, 1)).alias("same"),
            F.count(F.when(is_there & is_known & ~is_same, 1)).alias("different"),
            F.count(F.when(~is_there, 1)).alias("lost"),
            F.min(F.when(is_known & ~is_same, F.col("id"))).alias("first_lost"),
            F.max(F.when(is_same, F.col("transaction_id"))).alias("last_same"),
            F.min(F.when(is_new, F.col("transaction_id"))).alias("first_new"),
        )
    )
    row = (
        days.where("there > 0")
        .agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("same", "different", "lost")),
            F.min("first_lost").alias("first_lost"),
            F.coalesce(F.max("last_same"), F.lit(-1)).alias("last_same"),
            F.min("first_new").alias("first_new"),
        )
        .collect()[0]
    )
    return Overlap(**row.asDict())
