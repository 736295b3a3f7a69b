"""Filter pushdown: PostgreSQL evaluates Spark's filters, on request only.

Spark up to 4.3 keeps the reader of the query that it planned last for all queries on the DataFrame of one ``load()``:
``df.count()`` after ``df.where(...).count()`` counts only the filtered rows.  So a source that takes filters silently
returns wrong rows when its DataFrame is used twice.  Without ``pushFilters`` Spark evaluates its filters, and nothing
can go wrong.  The options ``finishedFrom``, ``finishedTo`` and ``where`` are safe: they belong to one ``load()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark import filters, schema as schemas
from django_pgqueue.spark.reader import PgQueueReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter


class PushingReader(PgQueueReader):
    """A reader that takes the filters that mean the same in PostgreSQL."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        whole = schemas.TABLES[self.options.table]
        for filter_ in filters_:
            if filters.condition(filter_, whole) is None:
                yield filter_
            else:
                self.pushed.append(filter_)
