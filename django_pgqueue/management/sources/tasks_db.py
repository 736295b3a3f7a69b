"""The table of django-tasks-db."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django_pgqueue.management.sources.found import Job, Row, Unmeant, delete, meant, selected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = "django_tasks_database_dbtaskresult"
READY = f"""
    select id, task_path, args_kwargs::text as call, queue_name, priority,
           case when extract(year from run_after) < 9000 then run_after end as run_after
    from {TABLE} where status = 'READY' order by enqueued_at, id for update skip locked
"""  # noqa: S608 -- the only value is a name of this file


class TasksDb:
    TABLES: ClassVar[Sequence[str]] = (TABLE,)

    def found(self, connection: Any) -> Iterator[Row]:
        for row in selected(connection, READY):
            yield Row(id=row["id"], table=TABLE, task=row["task_path"], means=meant(partial(job, row)))

    def moved(self, connection: Any, rows: Sequence[Row]) -> None:
        delete(connection, f"delete from {TABLE} where id = any(%s)", rows)  # noqa: S608


def job(row: dict[str, Any]) -> Job | Unmeant:
    call = json.loads(row["call"])
    kinds = {name: type(value) for name, value in call.items()} if isinstance(call, dict) else {}
    if kinds != {"args": list, "kwargs": dict}:
        return Unmeant("its arguments are not a call")
    return Job(
        task=row["task_path"], args=call["args"], kwargs=call["kwargs"], queue=row["queue_name"],
        priority=row["priority"], run_after=row["run_after"],
    )  # fmt: skip
