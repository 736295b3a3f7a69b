"""People who look at the queue, and a queue to look at."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_pgqueue import functions, testing
from django_pgqueue.tasks import registry, task
from django_pgqueue.values.times import Delay, DequeueAt
from tests.admin.page import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.functions import Received

MESSAGES = "/admin/pgqueue/message/"
ATTEMPTS = "/admin/pgqueue/attempt/"
WORKERS = "/admin/pgqueue/worker/"
TASK = "shop.tasks.send_receipt"
WORKER = "worker-1"


def noted(*args: Any, **kwargs: Any) -> None: ...


@pytest.fixture(scope="package", autouse=True)
def shop_tasks() -> Iterator[None]:
    """Tasks of the names that messages here have: of what is not in the code nothing is shown."""
    module = ModuleType("shop.tasks")
    for name in ("send_receipt", "book_courier", "send_reminder", "monthly_report", "crashed"):
        function = FunctionType(noted.__code__, noted.__globals__, name)
        function.__module__, function.__qualname__ = "shop.tasks", name
        setattr(module, name, task(function))
    sys.modules["shop.tasks"] = module
    yield
    del sys.modules["shop.tasks"]
    registry.forget()


@pytest.fixture
def visitor(db: None) -> Callable[..., Visitor]:
    """Somebody of the staff with some permissions, such as "view_message"."""

    def log_in(*permissions: str) -> Visitor:
        user = User.objects.create_user("-".join(permissions) or "nobody", is_staff=True)
        for name in permissions:
            user.user_permissions.add(Permission.objects.get(content_type__app_label="pgqueue", codename=name))
        return visitor_of(user)

    return log_in


@pytest.fixture
def root(db: None) -> Visitor:
    return visitor_of(User.objects.create_superuser("root"))


def visitor_of(user: User) -> Visitor:
    client = Client()
    client.force_login(user)
    return Visitor(client)


@pytest.fixture
def clock(db: None) -> Iterator[testing.Clock]:
    with testing.clock() as clock:
        yield clock


def send(
    content: str = '{"args": [], "kwargs": {}}',
    *,
    task: str | None = TASK,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    **more: Any,
) -> int:
    when = DequeueAt(dequeue_at) if dequeue_at is not None else None if delay_ms is None else Delay(delay_ms)
    return functions.enqueue(connection, functions.NewMessage(content=content, task=task, when=when, **more)).id


def claim(queue: str = "default", *, limit: int = 1, lock_ms: int = 60_000, tasks: bool = True) -> list[Received]:
    return functions.message_dequeue(
        connection, queues=[queue], limit=limit, lock_ms=lock_ms, worker=WORKER, tasks=tasks
    )


def complete(message: Received, result: str | None = None, **times: Any) -> None:
    success = functions.Success(message.id, message.attempt, result, **times)
    assert functions.message_complete(connection, [success], worker=WORKER) == {message.id}


def fail(message: Received, error: BaseException | str = "no", **times: Any) -> None:
    assert functions.message_fail(connection, message, error=functions.Error.of(error), **times)


def retry(message: Received, error: BaseException | str = "busy", **more: Any) -> str | None:
    return functions.message_defer(connection, message, error=functions.Error.of(error), **more)


def sign_in(worker: str = WORKER, queues: list[str] | None = None, exclude: tuple[str, ...] = (), **more: Any) -> None:
    functions.worker_seen(
        connection,
        worker=worker,
        queues=queues,
        exclude_queues=exclude,
        hostname=more.get("hostname", "web1"),
        pid=more.get("pid", 42),
        slots=more.get("slots", 4),
        asleep_ms=more.get("asleep_ms"),
        tasks=more.get("tasks", True),
    )


def sql(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
