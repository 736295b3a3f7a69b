"""The attempts of a database beside those of a lake."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

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
    """Attempts that only the lake has.  Retention drops whole days, and a server that went back loses the last ones."""
    last_same: int
    """The last transaction that wrote one of the same."""
    first_new: int | None
    """The first transaction that wrote an attempt that the lake lacks."""
    last_passed: int
    """The last transaction before the lake's position that wrote one."""
    again_from: int | None
    """The id from which on the lake has to be erased and read again; None: nothing has to be."""

    @property
    def is_behind(self) -> bool:
        """Whether the lake has gone past attempts that it lacks.  What was erased is older than the last of them."""
        return self.last_passed > self.last_same

    @property
    def remedy(self) -> str:
        """Says what happened, and what makes the lake agree with the database."""
        erase = ""
        if self.again_from is not None:
            erase = f"qpipeline erase --where 'id >= {self.again_from}', then "
        return (
            "A replica took over without the last transactions, or the server was restored from a backup that is older "
            "than the last export, or two servers write this lake. Nothing more was written. To go on with this "
            f"server: {erase}qpipeline export --adopt. It also reads again what was erased from the lake after that. "
            "If you need attempts that only the lake has, copy it first. Or use another folder."
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
    rows = _both(lake, version, options, since)
    is_new = ~F.col("known") & (F.col("transaction_id") >= position)
    is_passed = F.col("transaction_id") < version.position
    days = (
        rows.groupBy("day")
        .agg(
            F.count(F.when(F.col("there"), 1)).alias("there"),
            F.count(F.when(F.col("same"), 1)).alias("same"),
            F.count(F.when(F.col("there") & F.col("known") & ~F.col("same"), 1)).alias("different"),
            F.count(F.when(~F.col("there"), 1)).alias("lost"),
            F.min(F.when(F.col("known") & ~F.col("same"), F.col("id"))).alias("first_lost"),
            F.max(F.when(F.col("same"), F.col("transaction_id"))).alias("last_same"),
            F.min(F.when(is_new, F.col("transaction_id"))).alias("first_new"),
            F.max(F.when(is_new & is_passed, F.col("transaction_id"))).alias("last_passed"),
        )
        .collect()
    )
    last = max((row.day for row in days if row.same), default=float("inf"))
    days = [row for row in days if row.there or row.day > last]

    def values(name: str) -> list[int]:
        return [row[name] for row in days if row[name] is not None]

    found = Overlap(
        same=sum(values("same")),
        different=sum(values("different")),
        lost=sum(values("lost")),
        last_same=max(values("last_same"), default=-1),
        first_new=min(values("first_new"), default=None),
        last_passed=max(values("last_passed"), default=-1),
        again_from=min(values("first_lost"), default=None),
    )
    is_mixed = found.first_new is not None and found.first_new <= found.last_same
    if found.again_from is None and not is_mixed:
        return found
    return replace(found, again_from=_again_from(rows, found))


def _both(lake: Lake, version: Version, options: Mapping[str, str], since: dt.date | None) -> DataFrame:
    """Returns the attempts of the database and of the lake, one row for each id."""
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
    moment = F.unix_micros(F.coalesce("finished_at", "lake_finished_at"))
    return history.join(known, "id", "full").select(
        "id",
        "transaction_id",
        F.floor(moment / DAY_US).alias("day"),
        is_there.alias("there"),
        is_known.alias("known"),
        is_same.alias("same"),
    )


def _again_from(rows: DataFrame, found: Overlap) -> int | None:
    """Returns an id: what the lake has before it is older than all that comes again.  The order of ids is not that of
    transactions.
    """
    first, ends = found.again_from, [found.first_new]
    while True:
        if first is not None:
            ends.append(
                rows.where(F.col("there") & (F.col("id") >= first)).agg(F.min("transaction_id")).collect()[0][0]
            )
        end = min((one for one in ends if one is not None), default=None)
        if end is None:
            return first
        later = rows.where(F.col("same") & (F.col("transaction_id") >= end)).agg(F.min("id")).collect()[0][0]
        if later is None or (first is not None and later >= first):
            return first
        first = later
