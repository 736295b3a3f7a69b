"""The events in the admin: what was emitted, and its payload for those who may see content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue.durable import emit
from tests.admin.test_durable import ask
from tests.support.fixtures.admin import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django.fixtures import Settings

    from tests.support.admin_page import Visitor

pytestmark = [pytest.mark.usefixtures("clock"), pytest.mark.once]
BACKEND = "django_pgqueue.backend.PgQueueBackend"
PAID = f"{EVENTS}paid_3A7/change/"


def test_the_list_has_each_event_and_finds_it_by_its_beginning_and_time(root: Visitor) -> None:
    for name in ("paid:7", "paid:8", "shipped:7"):
        emit(name, {"charge": "ch_1"})
    connection.cursor().execute("update pgqueue_event set emitted_at = '2020-01-02' where name = 'paid:8'")
    assert root.open(EVENTS).column("name") == ["paid:7", "paid:8", "shipped:7"]
    assert root.open(EVENTS, q="paid:").column("name") == ["paid:7", "paid:8"]
    assert root.open(EVENTS, q="7").column("name") == []
    assert root.open(EVENTS, emitted_at__range__lte_0="2020-12-31").column("name") == ["paid:8"]


def test_decisions_are_not_among_them(root: Visitor) -> None:
    held = ask()
    connection.cursor().execute("select pgqueue_approval_decide(%s, 'ship', true, 'Ada')", [held])
    emit("paid:7")
    assert root.open(EVENTS).column("name") == ["paid:7"]
    assert root.client.get(f"{EVENTS}pgqueue_3Aapproval_3A{held}_3Aship/change/").status_code == 302


def test_the_payload_is_for_those_who_may_see_content(visitor: Callable[..., Visitor], root: Visitor) -> None:
    emit("paid:7", {"charge": "ch_1"})
    assert '"charge": "ch_1"' in root.open(PAID).root.text
    auditor = visitor("view_event").open(PAID).root.text
    assert "ch_1" not in auditor
    assert "You have no permission to see this." in auditor


def test_the_payload_follows_the_settings_of_sensitive_values(root: Visitor, settings: Settings) -> None:
    emit("paid:7", {"charge": "ch_1", "by": "Ada"})
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"SENSITIVE": ["charge"]}}}
    text = root.open(PAID).root.text
    assert "ch_1" not in text
    assert "Ada" in text


def test_names_and_times_that_a_row_can_have_are_shown(root: Visitor) -> None:
    name = "x/" + "ä&<b>" * 40
    emit(name, [1])
    connection.cursor().execute("update pgqueue_event set emitted_at = '9999-12-29'")
    page = root.open(EVENTS)
    [link] = page.root.one(id="result_list").all("a")[-1:]
    assert root.client.get(link.attributes["href"]).status_code == 200
    assert name in page.root.text
