"""New code on the queue of an older release: every entrance works, or says what to run.  None ends half-way."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.urls import reverse
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue import control, functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.conf import APP_LABEL
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.functions import sql_files
from django_pgqueue.metrics import views
from django_pgqueue.queue import Queue
from django_pgqueue.routing import publish
from tests.support import tasks
from tests.support.databases import empty_database, install, session_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

REMEDY = re.compile(r"manage\.py\s+migrate\s+django_pgqueue\s+--database\s+default")
OF_OTHER_APPS = ("admin", "auth", "contenttypes", "sessions")


@pytest.fixture(params=sql_files.releases())
def old_queue(request: pytest.FixtureRequest, conninfo: str) -> Iterator[None]:
    """The default database of the project has the queue of a release, and the tables of other apps."""
    with empty_database(conninfo, "outdated") as outdated:
        connection = connections["default"]
        connection.close()
        before = connections.settings["default"]["NAME"]
        # In the settings, where the connections of other threads and of listeners find it, too.
        connections.settings["default"]["NAME"] = connection.settings_dict["NAME"] = conninfo_to_dict(outdated)[
            "dbname"
        ]
        try:
            with session_in(outdated) as session:
                install(session, request.param)
            executor = MigrationExecutor(connection)
            executor.migrate([key for key in executor.loader.graph.leaf_nodes() if key[0] in OF_OTHER_APPS])
            yield
        finally:
            connection.close()
            connections.settings["default"]["NAME"] = connection.settings_dict["NAME"] = before


def command(name: str, *arguments: str) -> str:
    said = StringIO()
    with suppress(SystemExit):  # qdoctor, which found an error
        call_command(name, *arguments, stdout=said, stderr=said)
    return said.getvalue()


def page(name: str) -> None:
    client = Client()
    client.force_login(User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)[0])
    answer = client.get(reverse(name))
    assert answer.status_code in {200, 302, 503}
    if REMEDY.search(text := answer.content.decode()):
        raise OutdatedQueue(text)


def orders() -> str:
    functions.exchange_declare(connections["default"], "orders")
    return "orders"


def metrics() -> None:
    views.KEPT.forget()
    [lines] = [family.samples for family in views.KEPT.look() if family.name == "pgqueue_up"]
    assert [sample.value for sample in lines] == [0]


def listen() -> None:
    with Queue("mail").listen() as messages:
        next(messages)


async def listen_async() -> None:
    async with Queue("mail").alisten() as messages:
        await anext(messages)


def move() -> str:
    """One job waits in another queue."""
    with connections["default"].cursor() as cursor:
        cursor.execute("""
            create table django_tasks_database_dbtaskresult (
                id bigint, task_path text, args_kwargs jsonb, queue_name text, priority integer, run_after timestamptz,
                status text, enqueued_at timestamptz);
            insert into django_tasks_database_dbtaskresult
            values (
                1, 'tests.support.tasks.do_nothing', '{"args": [], "kwargs": {}}', 'default', 0, null, 'READY', now())
        """)
    said = command("qimport", "--from", "tasks-db")
    assert "moved 1 job" in said, said
    return said


ADMIN = [
    f"admin:{APP_LABEL}_{model._meta.model_name}_changelist"
    for model in apps.get_app_config(APP_LABEL).get_models()
    if admin.site.is_registered(model)
]
ENTRANCES: dict[str, Callable[[], Any]] = {
    "enqueue": tasks.do_nothing.enqueue,
    "enqueue_many": lambda: enqueue_many(tasks.do_nothing, [()]),
    "result": lambda: tasks.do_nothing.enqueue().refresh(),
    "Queue.send": lambda: Queue("mail").send({}),
    "Queue.send_many": lambda: Queue("mail").send_many([{}]),
    "Queue.receive": lambda: Queue("mail").receive(),
    "Queue.listen": listen,
    "Queue.alisten": lambda: asyncio.run(listen_async()),
    "backlog": lambda: functions.backlog(connections["default"]),
    "publish": lambda: publish(orders(), "order.created", {}),
    "pause": lambda: control.pause("mail"),
    "resume": lambda: control.resume("mail"),
    "set_channel": lambda: control.set_channel("acme", max_concurrency=1),
    "release_channel": lambda: control.release_channel("acme"),
    "repair_channels": control.repair_channels,
    "cancel": lambda: control.cancel("1"),
    "qstatus": lambda: command("qstatus", "--once"),
    "qbind": lambda: command("qbind"),
    "qimport": move,
    "qworker": lambda: command("qworker", "--burst", "--processes", "1"),
    "qworker --dry-run": lambda: command("qworker", "--dry-run"),
    **{name: partial(page, name) for name in ADMIN},
}


@pytest.mark.usefixtures("old_queue")
def test_every_entry_point_works_or_names_the_remedy() -> None:
    ends = {name: end_of(enter) for name, enter in ENTRANCES.items()}
    raw = {name: error for name, error in ends.items() if error is not None and not REMEDY.search(str(error))}
    assert raw == {}, "these fail otherwise"
    told = {name for name, error in ends.items() if isinstance(error, (OutdatedQueue, CommandError))}
    assert {"Queue.receive", "Queue.listen", "Queue.alisten", "backlog", "qstatus", "qworker"} <= told


def end_of(enter: Callable[[], Any]) -> Exception | None:
    try:
        enter()
    except Exception as error:  # noqa: BLE001 -- all of them at once
        return error
    return None


@pytest.mark.usefixtures("old_queue")
def test_qdoctor_and_metrics_report_an_outdated_queue(caplog: pytest.LogCaptureFixture) -> None:
    said = command("qdoctor")
    assert REMEDY.search(said)
    for other in ("psql -f sql/", "missing-function", "changed-function", "could-not-look"):
        assert other not in said, "single files would break the queue of the release"
    with caplog.at_level(logging.WARNING, "django_pgqueue.metrics"):
        metrics()
    assert REMEDY.search(caplog.text)
