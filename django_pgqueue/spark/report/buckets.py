"""``django_pgqueue.values.histogram`` as expressions of Spark."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.values.histogram import GROWTH, MIN_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

EMPTY = "cast(map() as map<int, bigint>)"


def bucket(ms: Column) -> Column:
    # greatest() ignores a null, so the null has its own case below.
    number = F.ceil(F.log(F.greatest(ms, F.lit(MIN_MS))) / math.log(GROWTH)).cast("int")
    return F.when(ms.isNotNull(), number)


def histogram(counted: DataFrame, keys: Sequence[str], number: str, count: str, name: str) -> DataFrame:
    """Returns one row for each of the keys, with a map from bucket to count."""
    return (
        counted.where(F.col(number).isNotNull())
        .groupBy(*keys, F.col(number).alias("bucket"))
        .agg(F.sum(count).alias("times"))
        .groupBy(*keys)
        .agg(F.map_from_entries(F.sort_array(F.collect_list(F.struct("bucket", "times")))).alias(name))
    )
