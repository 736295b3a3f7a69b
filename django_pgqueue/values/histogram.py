"""Histograms of durations, with buckets that grow by five per cent, for percentiles that can be added up.

A histogram is ``{bucket: count}``.  Two histograms are added up by their buckets, in Spark, in SQL or here.  So a
day is the sum of its hours, in whichever order they are added.  A percentile is wrong by 2.5 % at most.  (DDSketch,
Masson, Rim and Lee 2019, has the idea and the proof.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GROWTH = 1.05
MIN_MS = 0.001
"""One microsecond, the unit of PostgreSQL's times.  A shorter duration counts as one."""
MAX_DIGITS, MAX_TIMES = 4, 10**15
"""Limits of a bucket and of its count, as in the constraint of the roll-up."""


def bucket(ms: float) -> int:
    """
    >>> bucket(1), bucket(100), bucket(0)
    (0, 95, -141)
    """
    return math.ceil(math.log(max(ms, MIN_MS)) / math.log(GROWTH))


def middle_ms(number: int) -> float:
    """Returns the duration that represents a bucket: as far from its longest as from its shortest, in per cent."""
    return 2 * math.pow(GROWTH, number) / (GROWTH + 1)


def add(total: dict[str, int], histogram: Mapping[str, int]) -> None:
    """Adds a histogram to another one.  Their buckets are texts, as in JSON: so a page adds thousands of them up.

    >>> total = {"0": 1, "5": 2}
    >>> add(total, {"5": 3, "-7": 1})
    >>> total
    {'0': 1, '5': 5, '-7': 1}
    """
    for number, times in histogram.items():
        total[number] = total.get(number, 0) + times


def readable(found: object) -> dict[str, int]:
    """Returns the buckets of a JSON value that another program may have written, without what is no count of one.

    >>> readable({"5": 3, "-7": 1, "many": 1, "6": "x"}), readable([])
    ({'5': 3, '-7': 1}, {})
    """
    buckets = found.items() if isinstance(found, dict) else ()
    return {
        number: times
        for number, times in buckets
        if _is_bucket(number) and type(times) is int and 0 <= times < MAX_TIMES
    }


def _is_bucket(number: str) -> bool:
    digits = number.removeprefix("-")
    return len(digits) <= MAX_DIGITS and digits.isdecimal()


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
