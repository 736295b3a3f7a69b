"""A schema for each tenant: the search_path changes with the tenant, and the queue is in another schema."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from django_pgqueue import Exchange, Queue, control, enqueue_many, functions, publish
from django_pgqueue.durable import decide, emit
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.models import Message
from django_pgqueue.monitoring.doctor import installation
from django_pgqueue.monitoring.doctor.subject import Subject
from django_pgqueue.queue.message import ReceivedMessage
from django_pgqueue.tasks.after import Batch
from django_pgqueue.testing import drain
from tests.support import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db


@pytest.fixture
def own_schema(db: None) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("select current_schema()")
        [found] = cursor.fetchone()
        cursor.execute("create schema tenant")
        yield found
        cursor.execute("select set_config('search_path', %s, false)", (found,))


def search(*path: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select set_config('search_path', %s, true)", (", ".join(path),))


def test_a_tenant_enqueues_into_the_queue_of_all(own_schema: str) -> None:
    search("tenant", own_schema)
    result = tasks.echo.enqueue("hello")
    assert Message.objects.count() == 1
    search(own_schema)
    assert Message.objects.count() == 1
    drain()
    search("tenant", own_schema)
    result.refresh()
    assert result.return_value["args"] == ["hello"]


NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)


def received() -> ReceivedMessage:
    """As if the path had changed since it was received."""
    message = functions.Received(
        1, 1, 5, 0, "mail", None, None, "worker", 0, NOON, NOON, "{}", None, None, None, False,
    )  # fmt: skip
    return ReceivedMessage(received=message, database="default", max_content_bytes=1000)


CALLS: dict[str, Callable[[], object]] = {
    "enqueue": lambda: tasks.echo.enqueue("hello"),
    "enqueue_many": lambda: enqueue_many(tasks.echo, [("hello",)]),
    "send": lambda: Queue("mail").send({}),
    "send_many": lambda: Queue("mail").send_many([{}]),
    "receive": lambda: Queue("mail").receive(),
    "complete": lambda: received().complete(),
    "defer": lambda: received().defer(5),
    "fail": lambda: received().fail("no"),
    "heartbeat": lambda: received().heartbeat(),
    "publish": lambda: publish("orders", "created", {}),
    "route": lambda: Exchange("orders").route("created"),
    "declare": lambda: Exchange("orders").declare(),
    "delete": lambda: Exchange("orders").delete(),
    "bind": lambda: Exchange("orders").bind("#", queue="mail"),
    "unbind": lambda: Exchange("orders").unbind("#", queue="mail"),
    "done": lambda: Batch(database="default", results=[cast("Any", SimpleNamespace(id="1"))]).done,
    "emit": lambda: emit("paid"),
    "decide": lambda: decide(1, "refund", approved=True, user=User(username="ada")),
    "cancel": lambda: control.cancel(1),
    "run_from_step": lambda: control.run_from_step(1, "charge"),
    "pause": lambda: control.pause("mail"),
    "resume": lambda: control.resume("mail"),
    "order_worker": lambda: control.order_worker("web-1", "stop"),
    "pause_schedule": lambda: control.pause_schedule("nightly"),
    "resume_schedule": lambda: control.resume_schedule("nightly"),
    "run_schedule": lambda: control.run_schedule("nightly"),
    "set_channel": lambda: control.set_channel("acme", max_size=1),
    "release_channel": lambda: control.release_channel("acme"),
    "repair_channels": control.repair_channels,
    "edit": lambda: control.edit("cancel", control.Filter(queue="mail")),
    "count_edit": lambda: control.count_edit("cancel", control.Filter(queue="mail")),
    "edit_state": lambda: control.edit_state(1),
    "stop_edit": lambda: control.stop_edit(1),
    "resume_edit": lambda: control.resume_edit(1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_tenant_whose_path_lacks_the_queue_is_told_so(own_schema: str, call: Callable[[], object]) -> None:
    search("tenant")
    words = "schema that the search_path of this connection does not name"
    with pytest.raises(OutdatedQueue, match=words), transaction.atomic():
        call()


def test_the_doctor_works_where_each_cursor_sets_the_path_anew(
    own_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(installation.parts(Subject("default")))
    django: Any = connection
    make = django._cursor

    def make_for_a_tenant(name: str | None = None) -> Any:
        cursor = make(name)
        cursor.execute("select set_config('search_path', %s, false)", (own_schema,))
        return cursor

    monkeypatch.setattr(django, "_cursor", make_for_a_tenant)
    assert list(installation.parts(Subject("default"))) == before
