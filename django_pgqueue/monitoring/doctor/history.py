"""Checks the history's partitions: those of the next days exist, and the old ones are dropped."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.functions.attempt import OLD_DAYS
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import quoted
from django_pgqueue.values.sizes import size
from django_pgqueue.values.times import in_utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

MAX_COUNTED = 10_000
MAX_LAG_SECONDS = 36 * 3600
"""Exports run every day at least."""
MISSED_LATELY = "select l.missed_at > pgqueue_clock() - interval '7 days' from pgqueue_lake l where l.id = %(id)s"
MAINTAIN = "select pgqueue_attempt_maintain();"

MISSING_PARTITION = Kind(
    "missing-partition",
    Severity.WARNING,
    "Attempts that end on that day go to pgqueue_attempt_default. Once an hour, workers create the partitions of the "
    "next week: no worker has run for days, none could get the lock, or an event trigger or a missing right is in the "
    "way. The command says which.",
)
DEFAULT_PARTITION = Kind(
    "default-partition",
    Severity.WARNING,
    "These attempts ended on days without a partition. Once an hour, a worker moves those of past days; so does the "
    "command.",
)
HISTORY_OVERDUE = Kind(
    "history-overdue",
    Severity.WARNING,
    "Once an hour, workers drop old days, unless another session reads the history for hours, or something of another "
    "user needs the day. See the findings long-lock, old-transaction and worker-problem, or drop the days by hand.",
)

LAKE_BEHIND = Kind(
    "lake-behind",
    Severity.WARNING,
    "History that is older than HISTORY_DAYS waits for the lake for LAKE_DAYS, and then it is dropped. Export it with "
    "manage.py qpipeline export, every day at least. The command is for a lake that is given up.",
)
LAKE_MISSED = Kind(
    "lake-missed",
    Severity.ERROR,
    "Retention dropped days that the lake had not read: it waited for LAKE_DAYS. The lake has a gap there. Export more "
    "often. This finding disappears after a week.",
)

WANTED = """
select to_char(d.day, 'YYYYMMDD') from (
    select (pgqueue_clock() at time zone 'UTC')::date + n as day from generate_series(0, 1) as n
) as d
where not exists (
    select from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = 'pgqueue_attempt_' || to_char(d.day, 'YYYYMMDD')
)
order by 1
"""

IN_DEFAULT = """
select count(*), min(f.day), max(f.day) from (
    select (d.finished_at at time zone 'UTC')::date as day from pgqueue_attempt_default d
    where isfinite(d.finished_at) limit %(most)s
) as f
"""

OVERDUE = f"""
select count(*), min(c.relname::text), coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from {OLD_DAYS}
"""  # noqa: S608 - a constant


def partitions(patient: Subject) -> Iterator[Finding]:
    today = patient.value("select to_char(pgqueue_clock() at time zone 'UTC', 'YYYYMMDD')")
    for (day,) in patient.rows(WANTED):
        which = "today" if day == today else "tomorrow"
        yield MISSING_PARTITION.found(
            f"The history has no partition for {which}, {_date(day)} (UTC).",
            MAINTAIN,
            severity=Severity.ERROR if which == "today" else None,
            day=_date(day),
        )


def default_partition(patient: Subject) -> Iterator[Finding]:
    if patient.value("select to_regclass('pgqueue_attempt_default') is null"):
        return
    [(count, first, last)] = patient.rows(IN_DEFAULT, {"most": MAX_COUNTED + 1})
    if count:
        shown = f"{MAX_COUNTED:,}+" if count > MAX_COUNTED else f"{count:,}"
        yield DEFAULT_PARTITION.found(
            f"pgqueue_attempt_default has {shown} attempts, which ended from {first} to {last}.",
            MAINTAIN,
            rows=min(count, MAX_COUNTED),
            first=str(first),
            last=str(last),
        )


def overdue(patient: Subject) -> Iterator[Finding]:
    kept = patient.history_days
    if kept is None:
        return
    # One day of grace: workers drop old days once an hour, and a new day may just have begun.
    waits = patient.lake_days if patient.lakes() else 0
    [(count, oldest, in_bytes)] = patient.rows(OVERDUE, {"days_kept": kept + waits + 1})
    if count:
        yield HISTORY_OVERDUE.found(
            f"{count} {'day' if count == 1 else 'days'} of history ({size(in_bytes)}, from {_date(oldest[-8:])} on) "
            f"are older than HISTORY_DAYS, {kept}. Workers drop them; without one, repeat this until it returns 0.",
            f"select pgqueue_attempt_maintain(p_days_kept => {kept});",
            days=count,
            bytes=in_bytes,
            oldest=_date(oldest[-8:]),
        )


def lakes(patient: Subject) -> Iterator[Finding]:
    for lake in patient.lakes():
        seconds = lake.lag_seconds
        if seconds is None or seconds > MAX_LAG_SECONDS:
            when = "never" if lake.exported_at is None else f"on {in_utc(lake.exported_at):%Y-%m-%d %H:%M} UTC"
            yield LAKE_BEHIND.found(
                f"The lake {lake.location} was last exported {when}.",
                f"select pgqueue_lake_forget({quoted(lake.id)});",
                lake=lake.location,
                seconds=seconds,
            )
        if lake.missed_at is not None and patient.value(MISSED_LATELY, {"id": lake.id}):
            yield LAKE_MISSED.found(
                f"The lake {lake.location} lacks {lake.missed_attempts:,} attempts of the days {lake.missed_from} to "
                f"{lake.missed_until}.",
                lake=lake.location,
                attempts=lake.missed_attempts,
                since=str(lake.missed_from),
                until=str(lake.missed_until),
            )


def _date(digits: str) -> str:
    return dt.datetime.strptime(digits, "%Y%m%d").replace(tzinfo=dt.UTC).date().isoformat()
