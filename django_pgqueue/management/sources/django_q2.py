"""The tables of django-q2: the jobs of its ORM broker, and its schedules."""

from __future__ import annotations

import ast
import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings

from django_pgqueue.management.sources.found import Job, Recurring, Row, Unmeant, call_of, delete, meant, selected
from django_pgqueue.tasks.schedule import Rule
from django_pgqueue.values.times import MILLISECOND, local

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOBS, SCHEDULES = "django_q_ormq", "django_q_schedule"
UNLOCKED = f"""
    select id, payload from {JOBS} where lock is null or lock <= now() order by id for update skip locked
"""  # noqa: S608
ACTIVE = f"select * from {SCHEDULES} where repeats <> 0 order by id for update skip locked"  # noqa: S608
UNMEANT = ("hook", "chain", "iter_count", "cached", "timeout")
LAST_DAY = 28
"""The last day that each month has."""


class DjangoQ2:
    TABLES: ClassVar[Sequence[str]] = (JOBS, SCHEDULES)

    def found(self, connection: Any) -> Iterator[Row]:
        for row in selected(connection, UNLOCKED):
            package = opened(row["payload"])
            if isinstance(package, Unmeant):
                yield Row(id=row["id"], table=JOBS, task="?", means=package)
            else:
                yield Row(id=row["id"], table=JOBS, task=path_of(package["func"]), means=meant(partial(job, package)))
        for row in selected(connection, ACTIVE):
            yield Row(id=row["id"], table=SCHEDULES, task=row["func"], means=meant(partial(recurring, row)))

    def moved(self, connection: Any, rows: Sequence[Row]) -> None:
        for table in self.TABLES:
            own = [row for row in rows if row.table == table]
            delete(connection, f"delete from {table} where id = any(%s)", own)  # noqa: S608


def opened(payload: str) -> dict[str, Any] | Unmeant:
    """Returns what django-q2 has pickled and signed: it checks the signature, as its own workers do."""
    from django_q.signing import SignedPackage  # noqa: PLC0415

    try:
        package = SignedPackage.loads(payload)
        return {"args": package["args"], "kwargs": package["kwargs"], "func": package["func"], **package}
    except Exception as error:  # noqa: BLE001 -- unpickling may raise anything
        return Unmeant(f"it cannot be read ({type(error).__name__})")


def path_of(func: Any) -> str:
    """Returns the path of a function, or of the task that stands there now.  A partial has none: that of its class."""
    if isinstance(func, str):
        return func
    if isinstance(path := getattr(func, "module_path", None), str):
        return path
    named = func if hasattr(func, "__qualname__") else type(func)
    return f"{named.__module__}.{named.__qualname__}"


def job(package: dict[str, Any]) -> Job | Unmeant:
    for option in UNMEANT:
        if package.get(option):
            return Unmeant(f"it has {option}=")
    return Job(task=path_of(package["func"]), args=list(package["args"]), kwargs=package["kwargs"])


def recurring(row: dict[str, Any]) -> Job | Recurring | Unmeant:
    args, kwargs = arguments(row["args"], row["kwargs"])
    if row["hook"] or row["intended_date_kwarg"]:
        return Unmeant("it has a hook or an intended date")
    if row["schedule_type"] == "O":
        return Job(task=row["func"], args=args, kwargs=kwargs, run_after=row["next_run"])
    if row["repeats"] > 0:
        return Unmeant(f"it ends after {row['repeats']} runs")
    name, rule = row["name"] or f"{row['func']} ({row['id']})", rule_of(row)
    return Recurring(name=name, task=row["func"], rule=rule, args=args, kwargs=kwargs, not_before=row["next_run"])


def arguments(args: str | None, kwargs: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Returns the values of texts such as ``1, 'John'`` and ``x=1, name='John'``, the second also as a dictionary."""
    try:
        positional = ast.literal_eval(args) if args else ()
        if not kwargs:
            named = {}
        elif kwargs.lstrip().startswith("{"):
            named = ast.literal_eval(kwargs)
        else:
            call: Any = ast.parse(f"f({kwargs})", mode="eval").body
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError) as error:
        message = f"its arguments cannot be read ({error})"
        raise Unmeant(message) from error
    call = call_of(list(positional) if isinstance(positional, tuple) else [positional], named)
    if named.pop("q_options", None):
        message = "it has q_options="
        raise Unmeant(message)
    return call["args"], call["kwargs"]


def rule_of(row: dict[str, Any]) -> Rule:
    kind, zone = row["schedule_type"], settings.TIME_ZONE
    if kind == "C":
        return Rule(cron=row["cron"], timezone=zone)
    if kind == "I":
        return Rule(interval_ms=dt.timedelta(minutes=row["minutes"] or 0) // MILLISECOND)
    at = local(row["next_run"])
    if at.day > LAST_DAY and kind in {"M", "BM", "Q", "Y"}:
        message = f"not every month has a day {at.day}"
        raise Unmeant(message)
    clock = f"{at.minute} {at.hour}"
    months = {step: ",".join(str(m) for m in range(1, 13) if (m - at.month) % step == 0) for step in (2, 3)}
    found = {
        "H": f"{at.minute} * * * *",
        "D": f"{clock} * * *",
        "W": f"{clock} * * {at.isoweekday() % 7}",
        "M": f"{clock} {at.day} * *",
        "BM": f"{clock} {at.day} {months[2]} *",
        "Q": f"{clock} {at.day} {months[3]} *",
        "Y": f"{clock} {at.day} {at.month} *",
    }.get(kind)
    if found is None:
        message = "every two weeks is no cron expression"
        raise Unmeant(message)
    return Rule(cron=found, timezone=zone)
