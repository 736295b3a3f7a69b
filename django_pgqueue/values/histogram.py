"""Histograms of durations, with buckets that grow by five per cent, for percentiles that can be added up.

A histogram is ``{bucket: count}``.  Two histograms are merged by adding their counts, in Spark, in SQL or here.  So a
day is the sum of its hours, in whichever order they are added.  A percentile is wrong by 2.5 % at most.  (DDSketch,
Masson, Rim and Lee 2019, has the idea and the proof.)
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROWTH = 1.05
MIN_MS = 0.001
"""One microsecond, the unit of PostgreSQL's times.  A shorter duration counts as one."""


def bucket(ms: float) -> int:
    """
    >>> bucket(1), bucket(100), bucket(0)
    (0, 95, -141)
    """
    return math.ceil(math.log(max(ms, MIN_MS)) / math.log(GROWTH))


def middle_ms(number: int) -> float:
    """Returns the duration that represents a bucket: as far from its longest as from its shortest, in per cent."""
    return 2 * math.pow(GROWTH, number) / (GROWTH + 1)


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """
    >>> merged([{0: 1, 5: 2}, {5: 3}])
    {0: 1, 5: 5}
    """
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(sorted(total.items()))


def quantile_ms(histogram: Mapping[int, int], share: float) -> float | None:
    """Returns the duration that ``share`` of the counted ones do not exceed.  None: the histogram is empty.

    >>> round(quantile_ms({bucket(ms): 1 for ms in (10, 20, 4000)}, 0.5))
    20
    """
    count = sum(histogram.values())
    if not count:
        return None
    wanted = max(1, math.ceil(share * count))
    seen = 0
    for number, times in sorted(histogram.items()):
        seen += times
        if seen >= wanted:
            return middle_ms(number)
    raise AssertionError
