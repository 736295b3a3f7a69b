"""Statements that Django prepares, as the documentation advises to those who enqueue much one by one."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue.backend import enqueue_many
from django_pgqueue.models import Message
from tests.support import tasks
from tests.support.site.tasks import nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db(transaction=True)
PREPARED = "select count(*) from pg_prepared_statements where statement like '%pgqueue_message_create%'"


@pytest.fixture(autouse=True)
def prepares(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connection.close()
    options = {"server_side_binding": True, "prepare_threshold": 1}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", connection.settings_dict["OPTIONS"] | options)
    yield
    connection.close()


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda: tasks.echo.enqueue(1, word="two"),
        lambda: tasks.echo.using(priority=7, queue_name="mail").enqueue(),
        lambda: tasks.echo.using(priority=-100).enqueue(),
        lambda: tasks.echo.using(run_after=dt.timedelta(hours=1)).enqueue(),
        lambda: tasks.echo.using(run_after=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)).enqueue(),
        lambda: nothing.using(channel="one").enqueue(),
        lambda: nothing.using(unique_key="one").enqueue(),
        lambda: nothing.using(max_attempts=70_000).enqueue(),
        lambda: nothing.using(after=[nothing.enqueue()]).enqueue(),
        lambda: enqueue_many(nothing, [(), ()]),
    ],
)
def test_every_enqueue_statement_can_be_prepared(enqueue: Callable[[], Any]) -> None:
    for _ in range(4):
        enqueue()
    assert Message.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute(PREPARED)
        assert cursor.fetchone()[0] >= 1
