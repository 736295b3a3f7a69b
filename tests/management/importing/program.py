"""Fills the four other queues with their own packages, moves what they have, and prints what was seen.

It is run by a process of its own, after ``django.setup()``.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from procrastinate.contrib.django import app

from django_pgqueue.compat import task_enqueued
from django_pgqueue.models import Message, Schedule
from django_pgqueue.testing import drain
from tests.management.importing import tasks
from tests.support.pages import FOLDER, blocks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = tasks.PATH
LATER = dt.datetime(2040, 2, 3, 4, 5, tzinfo=dt.UTC)


def tasks_db() -> None:
    from django_tasks_db.models import DBTaskResult

    stays = tasks.stays
    for options in ({}, {"priority": 7, "queue_name": "mail"}, {"run_after": LATER}, {"queue_name": "post"}):
        stays.using(**options).enqueue(1, name="Ada")
    runs = stays.enqueue()
    DBTaskResult.objects.filter(pk=runs.id).update(status="RUNNING")
    DBTaskResult.objects.update(task_path=f"{PATH}.note")  # the backend of the task has changed meanwhile
    stays.enqueue()


def procrastinate() -> None:
    with app.open():
        note = app.configure_task(f"{PATH}.note", queue="default")
        note.defer(name="Ada")
        app.configure_task(f"{PATH}.note", queue="mail", priority=7, schedule_at=LATER).defer(n=2)
        app.configure_task(f"{PATH}.note", queue="default", lock="orders").defer(n=3)
        app.configure_task(f"{PATH}.note", queue="default", queueing_lock="orders").defer(n=4)
        app.configure_task(f"{PATH}.note", queue="default", priority=1000).defer(n=5)
        app.configure_task(f"{PATH}.gone", queue="default").defer(n=6)
        app.configure_task(f"{PATH}.pay", queue="default").defer(wrong=7)
    with connection.cursor() as cursor:
        cursor.execute(
            "update procrastinate_jobs set status = 'doing' where id = (select max(id) from procrastinate_jobs)"
        )
    with app.open():
        app.configure_task(f"{PATH}.pay", queue="default").defer(wrong=8)
        with connection.cursor() as cursor:
            deep = "[" * 3000 + "]" * 3000
            cursor.execute(
                "insert into procrastinate_jobs (queue_name, task_name, args) values ('default', %s, %s::jsonb)",
                [f"{PATH}.note", f'{{"n": {deep}}}'],
            )
        app.configure_task(f"{PATH}.keyed", queue="default").defer(n=9)


def django_q2() -> None:
    from django_q.models import OrmQ, Schedule as Theirs
    from django_q.tasks import async_task, schedule

    async_task(f"{PATH}.note", 1, name="Ada")
    async_task(tasks.pay, 2)  # as it was pickled, it is a task by now
    async_task(f"{PATH}.note", hook="shop.hooks.done")
    async_task(f"{PATH}.plain")
    paid: Any = tasks.pay
    async_task(partial(paid, 5))
    OrmQ.objects.create(key="shop", payload="nonsense", lock=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    schedule(f"{PATH}.note", 1, "x", name="hourly", schedule_type="H", next_run=LATER)
    schedule(f"{PATH}.note", name="quarterly", schedule_type="Q", next_run=LATER)
    schedule(f"{PATH}.note", name="half hour", schedule_type="I", minutes=30)
    schedule(f"{PATH}.note", 5, name="once", schedule_type="O", next_run=LATER)
    schedule(f"{PATH}.note", name="cron", schedule_type="C", cron="30 2 * * 1-5")
    schedule(f"{PATH}.note", name="two weeks", schedule_type="BW")
    schedule(f"{PATH}.note", name="three times", schedule_type="D", repeats=3)
    schedule(f"{PATH}.note", name="end of month", schedule_type="M", next_run=LATER.replace(month=1, day=31))
    Theirs.objects.filter(name="hourly").update(kwargs="name='Ada'")
    schedule(f"{PATH}.note", name="a set", schedule_type="D")
    schedule(f"{PATH}.note", name="no call", schedule_type="D")
    Theirs.objects.filter(name="a set").update(kwargs="{1, 2}")
    Theirs.objects.filter(name="no call").update(kwargs="x=1) + f(y=2")


def celery_beat() -> None:
    from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask

    nightly = CrontabSchedule.objects.create(minute="30", hour="2", day_of_week="mon-fri", timezone="Europe/Berlin")
    both = CrontabSchedule.objects.create(day_of_week="mon", day_of_month="1")
    often = IntervalSchedule.objects.create(every=5, period="minutes")
    clocked = ClockedSchedule.objects.create(clocked_time=LATER)

    def make(name: str, path: str = f"{PATH}.note", **more: Any) -> None:
        PeriodicTask.objects.create(name=name, task=path, **more)

    make("nightly", crontab=nightly, args='["x"]', kwargs='{"name": "Ada"}', queue="mail")
    make("often", interval=often, start_time=LATER)
    make("clocked", clocked=clocked, one_off=True, args="[9]")
    make("both", crontab=both)
    make("urgent", interval=often, priority=3)
    make("off", interval=often, enabled=False)
    make("a text", interval=often, args='"ab"')
    make("unknown", "celery.backend_cleanup", crontab=nightly)
    make("hourly", interval=often)  # another schedule has this name
    Schedule.objects.create(name="hourly", task=f"{PATH}.pay", interval_ms=1, next_at=LATER, content={})


SOURCES: dict[str, tuple[Callable[[], None], list[str]]] = {
    "tasks-db": (tasks_db, ["django_tasks_database_dbtaskresult"]),
    "procrastinate": (procrastinate, ["procrastinate_jobs"]),
    "django-q2": (django_q2, ["django_q_ormq", "django_q_schedule"]),
    "celery-beat": (celery_beat, ["django_celery_beat_periodictask"]),
}


def moved(name: str, *flags: str) -> list[str]:
    said = io.StringIO()
    call_command("qimport", "--from", name, *flags, stdout=said)
    return said.getvalue().splitlines()


def heard_by(move: Callable[[], list[str]]) -> tuple[list[str], int]:
    """Returns what was said, and how many enqueues a receiver of the signal has heard of meanwhile."""
    heard = []

    def hear(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(hear)
    try:
        return move(), len(heard)
    finally:
        task_enqueued.disconnect(hear)


def counts(tables: list[str]) -> list[int]:
    with connection.cursor() as cursor:
        found = []
        for table in [*tables, "pgqueue_message", "pgqueue_schedule"]:
            cursor.execute(f"select count(*) from {table}")
            found.append(cursor.fetchone()[0])
        return found


def try_with_an_error(name: str, table: str) -> str:
    """Moves where the other queue's table refuses the last statement."""
    with connection.cursor() as cursor:
        cursor.execute("""
            create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$
        """)
        cursor.execute(f"create trigger refuse before delete on {table} execute function refuse()")
        try:
            return refusal(name)
        finally:
            cursor.execute("drop function refuse() cascade")


def refusal(name: str) -> str:
    try:
        moved(name)
    except CommandError as error:
        return str(error)
    return "moved"


def without_permission(name: str, table: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"create role nobody; grant all on all tables in schema public to nobody; "
                       f"revoke all on {table} from nobody; set role nobody")  # fmt: skip
        try:
            return refusal(name)
        finally:
            cursor.execute("reset role; drop owned by nobody; drop role nobody")


def seen(name: str) -> dict[str, Any]:
    fill, tables = SOURCES[name]
    fill()
    found: dict[str, Any] = {"before": counts(tables)}
    found["dry"], found["heard in dry"] = heard_by(lambda: moved(name, "--dry-run"))
    found["after dry"] = counts(tables)
    found["forbidden"] = without_permission(name, tables[0])
    found["error"], found["after error"] = try_with_an_error(name, tables[0]), counts(tables)
    found["said"], found["heard"] = heard_by(lambda: moved(name))
    found["after"] = counts(tables)
    found["again"], found["after again"] = moved(name), counts(tables)
    found["messages"] = [
        [m.task, m.content, m.queue, m.priority, m.dequeue_at.year == LATER.year]
        for m in Message.objects.order_by("id")
    ]
    found["schedules"] = [
        [
            s.name,
            s.cron,
            s.interval_ms,
            s.timezone,
            s.content,
            s.queue,
            s.next_at.isoformat() if s.next_at >= LATER else "",
        ]
        for s in Schedule.objects.order_by("name")
    ]
    tasks.CALLS.clear()
    found["runs"] = [result.status for result in drain()]
    found["calls"] = tasks.CALLS[:]
    Message.objects.all().delete()
    Schedule.objects.all().delete()
    return found


def while_a_worker_has_one() -> list[str]:
    """What would be moved while a worker of the other queue has locked a row."""
    tasks_db()
    with psycopg.connect(os.environ["PGQUEUE_TEST_CONNINFO"]) as worker:
        worker.execute("select id from django_tasks_database_dbtaskresult where priority = 7 for update")
        said = moved("tasks-db", "--dry-run")
    with connection.cursor() as cursor:
        cursor.execute("delete from django_tasks_database_dbtaskresult")
    return said


def tell_in_tasks_db() -> None:
    from django_tasks_db.models import DBTaskResult

    for n in range(5):
        tasks.stays.enqueue(n)
    DBTaskResult.objects.update(task_path=f"{PATH}.tell")


def tell_in_procrastinate() -> None:
    with app.open():
        for n in range(5):
            app.configure_task(f"{PATH}.tell", queue="default").defer(n=n)


THEIR_WORKERS: dict[str, tuple[Callable[[], None], list[str]]] = {
    "tasks-db": (tell_in_tasks_db, ["db_worker", "--batch", "--backend", "old"]),
    "procrastinate": (tell_in_procrastinate, ["procrastinate", "worker", "--one-shot", "--concurrency", "1"]),
}


def beside_their_worker(name: str) -> dict[str, Any]:
    """Moves the jobs while a worker of the other queue runs one of them, and then runs all on both sides."""
    fill, command = THEIR_WORKERS[name]
    fill()
    with connection.cursor() as cursor:
        cursor.execute("create table ran (n integer); create table let_go ()")
        worker = subprocess.Popen([sys.executable, "-m", "django", *command], stdout=sys.stderr)
        try:
            wait_until(lambda: tasks.rows("select from ran"), "their worker has begun", 60)
            said = moved(name)
            cursor.execute("insert into let_go default values")
            code = worker.wait(60)
        finally:
            worker.kill()
        drain()
        runs = tasks.rows("select n from ran order by n")
        cursor.execute("drop table ran, let_go")
    return {"said": said, "code": code, "runs": [n for (n,) in runs]}


def taken_by_a_cluster() -> list[int]:
    """Ids of jobs that a cluster of django-q2 has taken, and of those that are there after the move."""
    from django_q.brokers import get_broker
    from django_q.models import OrmQ
    from django_q.tasks import async_task

    for n in range(3):
        async_task(f"{PATH}.note", n)
    [(taken, _)] = get_broker().dequeue()
    moved("django-q2")
    left = list(OrmQ.objects.values_list("pk", flat=True))
    OrmQ.objects.all().delete()
    Message.objects.all().delete()
    return [taken, *left]


def code_of_the_page() -> int:
    """Runs what one writes for django-q2, and returns the number of its jobs and schedules."""
    from django_q import tasks as theirs
    from django_q.models import OrmQ, Schedule as Theirs

    block = next(
        one
        for one in blocks(
            FOLDER / "move" / "django-q2.md",
        )
        if one.not_run
    )
    given = {"tomorrow": timezone.now() + dt.timedelta(days=1), "send_receipt": tasks.plain, "Schedule": Theirs}
    exec(block.text, {**vars(theirs), **given})  # noqa: S102 -- our own pages
    count: int = OrmQ.objects.count() + Theirs.objects.count()
    OrmQ.objects.all().delete()
    Theirs.objects.all().delete()
    return count


def main() -> None:
    call_command("migrate", "django_pgqueue", verbosity=0)
    without = io.StringIO()
    refused = {}
    for name in SOURCES:
        try:
            call_command("qimport", "--from", name, stdout=without)
        except Exception as error:  # noqa: BLE001
            refused[name] = f"{type(error).__name__}: {error}"
    call_command("migrate", verbosity=0)
    locked = while_a_worker_has_one()
    found = {
        "refused": refused,
        "locked": locked,
        "beside": {name: beside_their_worker(name) for name in THEIR_WORKERS},
        "taken": taken_by_a_cluster(),
        "page": code_of_the_page(),
    }
    print(json.dumps(found | {name: seen(name) for name in SOURCES}))
