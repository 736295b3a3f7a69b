"""``django_pgqueue.values.histogram`` as expressions of Spark, and the percentiles of such histograms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.values.histogram import GROWTH, MIN_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

SHARES = (0.5, 0.9, 0.95, 0.99)
EMPTY = "cast(map() as map<int, bigint>)"


def bucket(ms: Column) -> Column:
    # greatest() ignores a null, so the null has its own case below.
    number = F.ceil(F.log(F.greatest(ms, F.lit(MIN_MS))) / math.log(GROWTH)).cast("int")
    return F.when(ms.isNotNull(), number)


def histogram(entry: Column) -> Column:
    """Returns a map from bucket to count, of entries with both; a null is none."""
    return F.map_from_entries(F.sort_array(F.collect_list(entry)))


def percentiles(report: DataFrame, shares: Sequence[float] = SHARES) -> DataFrame:
    """Adds wait_p50_ms, run_p50_ms and so on to rows that have histograms; null where nothing was counted."""
    columns = {
        f"{kind}_p{share * 100:g}_ms".replace(".", "_"): quantile_ms(F.col(f"{kind}_histogram"), share)
        for kind in ("wait", "run")
        for share in shares
    }
    return report.withColumns(columns)


def quantile_ms(histogram: Column, share: float) -> Column:
    entries = F.sort_array(F.map_entries(histogram))
    count = F.aggregate(F.map_values(histogram), F.lit(0).cast("bigint"), lambda total, times: total + times)
    wanted = F.greatest(F.ceil(count * share), F.lit(1).cast("bigint"))
    start = F.struct(F.lit(0).cast("bigint").alias("seen"), F.lit(None).cast("int").alias("found"))
    walked = F.aggregate(
        entries,
        start,
        lambda at, entry: F.struct(
            (at["seen"] + entry["value"]).alias("seen"),
            F.coalesce(at["found"], F.when(at["seen"] + entry["value"] >= wanted, entry["key"])).alias("found"),
        ),
    )
    return 2 * F.pow(F.lit(GROWTH), walked["found"]) / (GROWTH + 1)
