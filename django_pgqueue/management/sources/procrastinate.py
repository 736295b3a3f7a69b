"""The table of Procrastinate.  Its periodic tasks stand in the code: no table has them."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django_pgqueue.management.sources.found import Job, Row, Unmeant, call_of, delete, meant, selected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = "procrastinate_jobs"
TODO = f"""
    select id, task_name, args::text as kwargs, queue_name, priority, lock, queueing_lock, scheduled_at
    from {TABLE} where status = 'todo' order by id for update skip locked
"""  # noqa: S608


class Procrastinate:
    TABLES: ClassVar[Sequence[str]] = (TABLE,)

    def found(self, connection: Any) -> Iterator[Row]:
        for row in selected(connection, TODO):
            yield Row(id=row["id"], table=TABLE, task=row["task_name"], means=meant(partial(job, row)))

    def moved(self, connection: Any, rows: Sequence[Row]) -> None:
        delete(connection, f"delete from {TABLE} where id = any(%s)", rows)  # noqa: S608


def job(row: dict[str, Any]) -> Job | Unmeant:
    if row["lock"] is not None:
        return Unmeant("it has a lock, which orders it among other jobs: here a task has a channel")
    if row["queueing_lock"] is not None:
        return Unmeant("it has a queueing_lock: here a task has a unique_key")
    return Job(
        task=row["task_name"], **call_of([], json.loads(row["kwargs"])), queue=row["queue_name"],
        priority=row["priority"], run_after=row["scheduled_at"],
    )  # fmt: skip
