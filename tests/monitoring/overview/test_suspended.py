"""Suspended durable tasks are counted by what they wait for, the same for everybody who shows them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.functions import Wait
from django_pgqueue.metrics.queue import families
from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import suspended
from tests.support.fixtures.admin import TASK, claim, clock, noon, root, send, visitor

if TYPE_CHECKING:
    from tests.support.admin_page import Visitor

__all__ = ["clock", "noon", "root", "visitor"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("noon"), pytest.mark.once]


def suspend(wait: Wait, queue: str = "default") -> None:
    child = send(task="child", queue="of children")
    send(task=TASK, queue=queue)
    [held] = claim(queue)
    if wait.name is None:
        wait = Wait(after_ids=(child,))
    functions.message_suspend(connection, held, wait)


def said(*arguments: str) -> str:
    output = io.StringIO()
    call_command("qstatus", "--once", *arguments, stdout=output)
    return output.getvalue()


def test_they_are_counted_in_qstatus_metrics_and_overview(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Suspended" not in said()
    for number in range(3):
        suspend(Wait(name="paid", kind="event", event=f"paid:{number}", delay_ms=60_000 if number else None))
    suspend(Wait(name="ok", kind="approval"))
    suspend(Wait(name="nap", delay_ms=60_000))
    suspend(Wait(name="over", delay_ms=0))  # it is ready
    suspend(Wait(), queue="mail")
    counted = {"default": {"decision": 1, "event": 3, "time": 1}, "mail": {"children": 1}}
    words = "3 for events, 1 for decisions, 1 for times, 1 for children"
    assert f"\nSuspended durable tasks wait: {words}\n" in said()
    assert json.loads(said("--json"))["suspended"] == {"queues": counted, "is_at_least": False}
    assert f"Suspended durable tasks wait: {words}." in root.open("/admin/django_pgqueue/overview/").root.text
    [family] = [one for one in families(["default"]) if one.name == "pgqueue_suspended_messages"]
    found = {(one.labels["queue"], one.labels["wait_for"]): one.value for one in family.samples}
    assert found == {(queue, kind): counted[queue].get(kind, 0) for queue in counted for kind in suspended.KINDS}
    monkeypatch.setattr(suspended, "COUNTED", 2)
    with overview.bounded("default"):
        assert overview.taken("default").suspended.is_capped
    assert "Suspended durable tasks wait: more than " in said()
