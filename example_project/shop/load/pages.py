"""How long the pages of the admin take, until their first byte."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APP = "django_pgqueue"
USER = f"load-{os.getpid()}"


@dataclass(slots=True)
class Page:
    """A page, and the least of what several requests took."""

    name: str
    url: str
    status: int = 0
    seconds: float = float("inf")
    cpu_seconds: float = float("inf")
    """Of this process and of its session of PostgreSQL: on a busy machine only this can be compared."""
    database_seconds: float = float("inf")
    queries: int = 0
    slowest: str = field(default="", repr=False)


class Meter:
    """Measures the queries of one request."""

    def __init__(self) -> None:
        self.seconds, self.queries = 0.0, 0
        self.longest, self.slowest = 0.0, ""

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.monotonic()
        try:
            return execute(sql, params, many, context)
        finally:
            took = time.monotonic() - began
            self.seconds, self.queries = self.seconds + took, self.queries + 1
            if took > self.longest:
                self.longest, self.slowest = took, sql


def measured(times: int) -> Iterator[Page]:
    with visitor() as client:
        for page in pages():
            for _ in range(times):
                meter, before = Meter(), cpu_seconds()
                began = time.monotonic()
                with connection.execute_wrapper(meter):
                    response = client.get(page.url, SERVER_NAME="localhost")
                seconds = time.monotonic() - began
                page.cpu_seconds = min(page.cpu_seconds, cpu_seconds() - before)
                page.status, page.queries = response.status_code, meter.queries
                if seconds < page.seconds:
                    page.seconds, page.database_seconds, page.slowest = seconds, meter.seconds, meter.slowest
            yield page


def cpu_seconds() -> float:
    """Return that of this process and, where the server runs on this Linux, of the session."""
    connection.ensure_connection()
    of_session = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
    nanoseconds = int(of_session.read_text().split()[0]) if of_session.exists() else 0
    return time.process_time() + nanoseconds / 1e9


@contextmanager
def visitor() -> Iterator[Client]:
    """A superuser, who exists for that long."""
    users = get_user_model().objects
    users.filter(username=USER).delete()
    user = users.create(username=USER, is_staff=True, is_superuser=True)
    try:
        client = Client()
        client.force_login(user)
        yield client
    finally:
        user.delete()


def pages() -> Iterator[Page]:
    yield Page("start", reverse("admin:index"))
    yield from of_models()
    yield from filtered()
    yield from of_rows()
    yield Page("Overview, live", reverse(f"admin:{APP}_overview_live"))
    yield Page("Approvals", reverse(f"admin:{APP}_message_approvals"))
    yield Page("Errors", reverse(f"admin:{APP}_attempt_errors"))
    yield Page("Errors, 30 days", reverse(f"admin:{APP}_attempt_errors") + "?period=30d")
    yield Page("Everything that matches", reverse(f"admin:{APP}_message_edit") + "?queue=load-bulk")
    yield Page("Everything that matches, attempts", reverse(f"admin:{APP}_attempt_edit") + "?status__exact=failed")


def of_models() -> Iterator[Page]:
    """Yield each list, and the page of its last row."""
    for model in sorted(apps.get_app_config(APP).get_models(), key=lambda one: one.__name__):
        name = model.__name__
        if shown := found(f"{name.lower()}_changelist"):
            yield Page(name, shown)
        if found(f"{name.lower()}_change", 0) and (row := model._default_manager.last()):  # noqa: SLF001 - as Django documents
            yield Page(f"{name}, a row", str(found(f"{name.lower()}_change", row.pk)))


def filtered() -> Iterator[Page]:
    for question in (
        "status=ready", "status=ready&queue=load-bulk", "status=scheduled", "status=running", "status=expired",
        "queue=load-bulk", "channel=load-tenant-1", "q=send_receipt", "p=10",
    ):  # fmt: skip
        yield Page(f"Message, {question}", f"{found('message_changelist')}?{question}")
    for question in (
        "status__exact=failed", "queue=load-bulk", "error_class=KeyError", "final__exact=0", "q=tasks", "p=10",
    ):  # fmt: skip
        yield Page(f"Attempt, {question}", f"{found('attempt_changelist')}?{question}")


def of_rows() -> Iterator[Page]:
    for kind, where in KINDS.items():
        if pk := first(where):
            yield Page(f"Message, a {kind} row", str(found("message_change", pk)))
    if pk := first("status = 'failed' order by id desc", "pgqueue_attempt"):
        yield Page("Attempt, a failed row", str(found("attempt_change", pk)))


KINDS = {
    "ready": "queue = 'load-bulk' and unlock_at is null order by id desc",
    "running": "unlock_at > pgqueue_now() order by unlock_at",
    "suspended": "suspended_attempt is not null order by awaited_event",
    "waiting": "awaited_id is not null order by awaited_id",
    "parked": "parked_at is not null order by queue",
    "lane's": "channel = 'load-tenant-1' order by id",
}


def found(name: str, *args: Any) -> str | None:
    try:
        return reverse(f"admin:{APP}_{name}", args=args)
    except NoReverseMatch:
        return None


def first(where: str, table: str = "pgqueue_message") -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(f"select id from {table} where {where} limit 1")  # noqa: S608 - all of them stand above
        row = cursor.fetchone()
    return row and int(row[0])


def lines(times: int) -> Iterator[str]:
    yield f"{'page':46}{'first byte':>11}{'of it CPU':>11}{'database':>11}{'queries':>9}"
    for page in measured(times):
        mark = "" if page.status == 200 else f"  answers {page.status}"
        took = (page.seconds, page.cpu_seconds, page.database_seconds)
        yield f"{page.name:46}{''.join(f'{each * 1000:>8,.0f} ms' for each in took)}{page.queries:>9}{mark}"
        if page.cpu_seconds > 0.3:
            yield f"    {' '.join(page.slowest.split())[:160]}"
