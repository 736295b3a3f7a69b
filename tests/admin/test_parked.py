"""Messages that no worker knows, as people see them and act on them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.models import Attempt, Message
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, TASK, WORKER, claim, send, sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("clock")

OVERVIEW = "/admin/django_pgqueue/overview/"
REASON = "<b>shop.tasks</b> has no 'new'."


def park(pk: int, reason: str = REASON) -> int:
    [held] = claim()
    assert held.id == pk
    functions.message_park(connection, [(held, reason)], worker=WORKER)
    return pk


def is_parked(pk: int) -> bool:
    return Message.objects.filter(pk=pk, parked_at__isnull=False).exists()


def test_the_overview_names_the_task_and_the_reason(root: Visitor, clock: Clock) -> None:
    sign_in()
    park(send(task="shop.tasks.new"))
    clock.advance(dt.timedelta(seconds=40))
    page = root.open(OVERVIEW)
    [warning] = [item.text for item in page.root.one("ul", class_="pgqueue-warnings").all("li")]
    assert warning.startswith(
        "1 of shop.tasks.new in the queue default waits for a worker that knows the task, the first for 40 s: "
    )
    assert REASON in warning
    assert [one.attributes["href"] for one in page.root.one("ul", class_="pgqueue-warnings").all("a")] == [
        "/admin/django_pgqueue/message/?task=shop.tasks.new"
    ]


def test_the_newest_task_is_named_and_the_others_are_counted(root: Visitor, clock: Clock) -> None:
    for n in range(12):
        park(send(task=f"shop.tasks.a{n}"))
        clock.advance(dt.timedelta(hours=1))
    park(send(task="shop.tasks.typo"))
    items = [item.text for item in root.open(OVERVIEW).root.one("ul", class_="pgqueue-warnings").all("li")]
    assert "1 of shop.tasks.typo" in items[0]
    assert len(items) == 11
    assert items[-1] == "3 more tasks wait for a worker that knows them."


def test_without_the_permission_to_see_messages_there_is_no_link(visitor: Callable[..., Visitor]) -> None:
    park(send(task="shop.tasks.new"))
    page = visitor("view_overview").open(OVERVIEW)
    assert page.root.one("ul", class_="pgqueue-warnings").all("a") == []


def test_the_page_shows_why_a_parked_message_waits_and_the_list_since_when(root: Visitor, clock: Clock) -> None:
    sign_in()
    pk = park(send())
    since = clock.at
    clock.advance(dt.timedelta(minutes=3))
    page = root.open(f"{MESSAGES}{pk}/change/")
    assert page.reasons[0] == (
        f"It waits since {since:%Y-%m-%d %H:%M:%S} for a worker that knows its task. "
        f"The last one that did not: {REASON}"
    )
    [row] = root.open(MESSAGES).rows
    assert row["status"] == "scheduled parked"
    assert "3 min ago" in row["dequeue at"]


def test_run_now_lets_the_next_worker_try_the_message(root: Visitor) -> None:
    pk = park(send())
    page = root.act(MESSAGES, "run_now", [pk])
    assert page.said == ["1 message made ready to run now."]
    assert not is_parked(pk)
    [held] = claim()
    assert (held.id, held.attempt) == (pk, 1)


def test_a_parked_message_cannot_be_postponed(root: Visitor) -> None:
    pk = park(send())
    page = root.confirm(root.act(MESSAGES, "postpone", [pk]), delay="1 day")
    assert page.said == [f"Not changed: 1 waiting for a worker that knows it, and not for a time ({pk})."]
    assert is_parked(pk)


def test_a_parked_message_is_cancelled_like_a_waiting_one(root: Visitor) -> None:
    pk = park(send())
    root.confirm(root.act(MESSAGES, "cancel", [pk]))
    assert not Message.objects.filter(pk=pk).exists()
    assert Attempt.objects.get(message_id=pk).status == "cancelled"


def test_a_message_that_failed_as_unknown_can_be_enqueued_again(root: Visitor, clock: Clock) -> None:
    pk = park(send())
    clock.advance(dt.timedelta(hours=1))
    sign_in()
    functions.worker_lacks(connection, WORKER, [TASK])
    assert functions.message_unknown_fail(connection, [functions.Line("default", TASK)], seconds=3600) == 1
    failed = Attempt.objects.get(message_id=pk)
    page = root.open(f"{ATTEMPTS}{failed.pk}/change/")
    assert f"No worker has known the task {TASK} for 3600 seconds" in page.root.text
    assert f"{WORKER} on web1" in page.root.text
    root.press(page, "Enqueue again")
    [held] = claim()
    assert (held.task, held.attempt) == (TASK, 1)
