from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.models import Attempt, Message
from tests.admin.conftest import ATTEMPTS, MESSAGES, WORKERS, claim, complete, send, sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.page import Visitor

    LogIn = Callable[..., Visitor]

HOUR_MS = 3_600_000
LISTS = {"message": MESSAGES, "attempt": ATTEMPTS, "worker": WORKERS}
ACTIONS = [(MESSAGES, "run_now"), (MESSAGES, "postpone"), (MESSAGES, "cancel"), (ATTEMPTS, "enqueue_again")]


@pytest.fixture
def pages(db: None) -> dict[str, list[str]]:
    """The pages of each model, and a row on each."""
    sign_in("worker-1")
    send(queue="other")
    complete(claim("other")[0])
    message = send(delay_ms=HOUR_MS)
    return {
        "message": [MESSAGES, f"{MESSAGES}{message}/change/", f"{MESSAGES}{message}/history/"],
        "attempt": [ATTEMPTS, f"{ATTEMPTS}{Attempt.objects.get().pk}/change/"],
        "worker": [WORKERS, f"{WORKERS}worker-1/change/"],
    }


def selected(url: str) -> int:
    return Message.objects.get().pk if url == MESSAGES else Attempt.objects.get().pk


@pytest.mark.parametrize("model", LISTS)
def test_who_may_view_sees_and_can_do_nothing(visitor: LogIn, pages: dict[str, list[str]], model: str) -> None:
    clerk = visitor(f"view_{model}")
    for url in pages[model]:
        assert clerk.client.get(url).status_code == 200, url
    page = clerk.open(LISTS[model])
    assert len(page.rows) == 1
    assert page.actions == []
    assert page.root.all("input", type="checkbox") == []


@pytest.mark.parametrize("model", LISTS)
def test_who_may_not_view_sees_nothing(visitor: LogIn, pages: dict[str, list[str]], model: str) -> None:
    others = [f"{may}_{other}" for other in LISTS if other != model for may in ("view", "change", "add", "delete")]
    clerk = visitor(*others)
    for url in pages[model]:
        assert clerk.client.get(url).status_code == 403, url
        assert clerk.client.post(url).status_code == 403, url
    assert f"/pgqueue/{model}/" not in clerk.client.get("/admin/").content.decode()


@pytest.mark.parametrize("model", LISTS)
def test_nobody_adds_edits_or_deletes(root: Visitor, pages: dict[str, list[str]], model: str) -> None:
    row = pages[model][1].removesuffix("change/")
    assert root.client.get(f"{LISTS[model]}add/").status_code == 403
    assert root.client.post(f"{LISTS[model]}add/", {}).status_code == 403
    assert root.client.post(f"{row}change/", {}).status_code == 403
    assert root.client.post(f"{row}delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in root.open(LISTS[model]).actions


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_an_action_that_is_not_offered_can_not_be_forced(
    visitor: LogIn, pages: dict[str, list[str]], url: str, action: str
) -> None:
    clerk = visitor("view_message", "view_attempt", "add_message", "delete_message")
    before = Message.objects.values_list("pk", "dequeue_at").get()
    for more in ({}, {"confirmed": "yes", "delay": "1 week"}, {"index": 0}, {"select_across": 1}):
        clerk.client.post(url, {"action": action, "_selected_action": [selected(url)], **more})
    assert Message.objects.values_list("pk", "dequeue_at").get() == before


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_who_may_change_may_act(visitor: LogIn, pages: dict[str, list[str]], url: str, action: str) -> None:
    clerk = visitor("change_message", "change_attempt")
    assert action in clerk.open(url).actions
    page = clerk.act(url, action, [selected(url)])
    if page.root.all("input", name="confirmed"):
        page = clerk.confirm(page)
    assert page.said[0].startswith("1 message "), page.said


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_a_foreign_page_can_not_act(root: Visitor, pages: dict[str, list[str]], url: str, action: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="root"))
    data: dict[str, Any] = {
        "action": action,
        "_selected_action": [selected(url)],
        "confirmed": "yes",
        "delay": "1 week",
    }
    assert client.post(url, data).status_code == 403
    assert client.get(url, data).status_code == 302, "not by a link either: Django takes it for a filter"


def test_who_is_not_of_the_staff_is_asked_to_log_in(db: None, pages: dict[str, list[str]]) -> None:
    client = Client()
    client.force_login(User.objects.create_user("customer"))
    for url in [url for urls in pages.values() for url in urls]:
        assert client.get(url).url.startswith("/admin/login/"), url  # type: ignore[attr-defined]
