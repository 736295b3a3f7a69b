"""The tables of django-celery-beat: periodic tasks.  Celery's jobs stand in its broker, and no table has them."""

from __future__ import annotations

import datetime as dt
import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django_pgqueue.management.sources.found import Job, Recurring, Row, Unmeant, call_of, delete, meant, selected
from django_pgqueue.tasks.schedule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PREFIX = "django_celery_beat_"
TABLE = f"{PREFIX}periodictask"
ENABLED = f"""
    select t.id, t.name, t.task, t.args, t.kwargs, t.queue, t.exchange, t.routing_key, t.headers, t.priority, t.expires,
           t.expire_seconds, t.one_off, t.start_time, t.solar_id, l.clocked_time, i.every, i.period,
           c.minute, c.hour, c.day_of_month, c.month_of_year, c.day_of_week, c.timezone::text as timezone
    from {TABLE} t
    left join {PREFIX}intervalschedule i on i.id = t.interval_id
    left join {PREFIX}crontabschedule c on c.id = t.crontab_id
    left join {PREFIX}clockedschedule l on l.id = t.clocked_id
    where t.enabled order by t.id for update of t skip locked
"""  # noqa: S608
# Beat looks at this row every few seconds, and reads its schedules again when it has changed.
TELL_BEAT = f"""
    insert into {PREFIX}periodictasks (ident, last_update) values (1, now())
    on conflict (ident) do update set last_update = now()
"""  # noqa: S608
UNMEANT = ("exchange", "routing_key", "priority", "expires", "expire_seconds")
MICROSECONDS_A_MILLISECOND = 1000


class CeleryBeat:
    TABLES: ClassVar[Sequence[str]] = (TABLE,)

    def found(self, connection: Any) -> Iterator[Row]:
        for row in selected(connection, ENABLED):
            yield Row(id=row["id"], table=TABLE, task=row["task"], means=meant(partial(meaning, row)))

    def moved(self, connection: Any, rows: Sequence[Row]) -> None:
        delete(connection, f"delete from {TABLE} where id = any(%s)", rows)  # noqa: S608
        with connection.cursor() as cursor:
            cursor.execute(TELL_BEAT)


def meaning(row: dict[str, Any]) -> Job | Recurring:
    for option in UNMEANT:
        if row[option] is not None and row[option] != "":
            message = f"it has {option}"
            raise Unmeant(message)
    if (
        json.loads(row["headers"] or "{}")
        or row["solar_id"] is not None
        or (row["one_off"] and not row["clocked_time"])
    ):
        message = "it has headers, goes by the sun, or runs only once"
        raise Unmeant(message)
    call = call_of(json.loads(row["args"] or "[]"), json.loads(row["kwargs"] or "{}"))
    if row["clocked_time"] is not None:
        return Job(task=row["task"], queue=row["queue"] or None, run_after=row["clocked_time"], **call)
    return Recurring(
        name=row["name"], task=row["task"], rule=rule_of(row), queue=row["queue"] or None,
        not_before=row["start_time"], **call,
    )  # fmt: skip


def rule_of(row: dict[str, Any]) -> Rule:
    if row["every"] is not None:
        interval = dt.timedelta(**{row["period"]: row["every"]})
        if interval.microseconds % MICROSECONDS_A_MILLISECOND:
            message = f"{interval} is no whole number of milliseconds"
            raise Unmeant(message)
        return Rule(interval_ms=interval // dt.timedelta(milliseconds=1))
    fields = [row[name].replace(" ", "") for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")]
    if fields[2] != "*" and fields[4] != "*":
        message = "it names days of the month and of the week: Celery runs it if both fit, and cron if one does"
        raise Unmeant(message)
    return Rule(cron=" ".join(fields), timezone=row["timezone"])
