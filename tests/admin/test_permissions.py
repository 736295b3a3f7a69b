from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_pgqueue.models import Attempt, Message
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, claim, complete, retry, send, sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

    LogIn = Callable[..., Visitor]

HOUR_MS = 3_600_000
LISTS = {"message": MESSAGES, "attempt": ATTEMPTS, "worker": WORKERS}
ACTIONS = [(MESSAGES, "run_now"), (MESSAGES, "postpone"), (MESSAGES, "cancel"), (ATTEMPTS, "enqueue_again")]
NEEDED = {
    "run_now": "run_message",
    "postpone": "change_message",
    "cancel": "cancel_message",
    "enqueue_again": "run_message",
}
ALL = {*NEEDED.values(), "see_content", "view_message", "view_attempt"}


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
def test_the_view_permission_shows_pages_and_allows_no_action(
    visitor: LogIn, pages: dict[str, list[str]], model: str
) -> None:
    clerk = visitor(f"view_{model}")
    for url in pages[model]:
        assert clerk.client.get(url).status_code == 200, url
    page = clerk.open(LISTS[model])
    assert len(page.rows) == 1
    assert page.actions == []
    assert page.root.all("input", type="checkbox") == []


@pytest.mark.parametrize("model", LISTS)
def test_without_the_view_permission_nothing_is_shown(visitor: LogIn, pages: dict[str, list[str]], model: str) -> None:
    others = [f"{may}_{other}" for other in LISTS if other != model for may in ("view", "change", "add", "delete")]
    clerk = visitor(*others)
    for url in pages[model]:
        assert clerk.client.get(url).status_code == 403, url
        assert clerk.client.post(url).status_code == 403, url
    assert f"/django_pgqueue/{model}/" not in clerk.client.get("/admin/").content.decode()


@pytest.mark.parametrize("model", LISTS)
def test_rows_that_workers_write_cannot_be_added_edited_or_deleted(
    root: Visitor, pages: dict[str, list[str]], model: str
) -> None:
    row = pages[model][1].removesuffix("change/")
    assert root.client.get(f"{LISTS[model]}add/").status_code == 403
    assert root.client.post(f"{LISTS[model]}add/", {}).status_code == 403
    assert root.client.post(f"{row}delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in root.open(LISTS[model]).actions
    assert model == "message" or root.client.post(f"{row}change/", {}).status_code == 403


def test_the_index_offers_change_only_where_a_change_is_possible(root: Visitor, db: None) -> None:
    index = root.open("/admin/django_pgqueue/").root

    def linked(kind: str) -> set[str]:
        return {link.attributes["href"].split("/")[3] for link in index.all("a", class_=kind)}

    assert linked("viewlink") == {"attempt", "exchange", "overview", "reporthour", "worker"}
    assert linked("changelink") == {"binding", "channel", "message", "queuestate", "schedule"}


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_an_action_needs_its_own_permission_and_cannot_be_forced(
    visitor: LogIn, pages: dict[str, list[str]], url: str, action: str
) -> None:
    """Every other permission there is does not help."""
    others = ALL - {NEEDED[action]} | {"add_message", "delete_message", "add_attempt", "change_attempt"}
    clerk = visitor(*sorted(others))
    assert action not in clerk.open(url).actions
    before = Message.objects.values_list("pk", "dequeue_at").get()
    for more in ({}, {"confirmed": "yes", "delay": "1 week"}, {"index": 0}, {"select_across": 1}):
        clerk.client.post(url, {"action": action, "_selected_action": [selected(url)], **more})
    assert Message.objects.values_list("pk", "dequeue_at").get() == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_a_user_with_the_permission_may_act_and_the_act_is_logged(
    visitor: LogIn, pages: dict[str, list[str]], url: str, action: str
) -> None:
    clerk = visitor("view_message", "view_attempt", NEEDED[action])
    assert action in clerk.open(url).actions
    acted_on = selected(url)
    page = clerk.act(url, action, [acted_on])
    if page.root.all("input", name="confirmed"):
        assert not LogEntry.objects.exists(), "to ask is not to do"
        page = clerk.confirm(page)
    assert page.said[0].startswith("1 message "), page.said
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.get_username()) == (str(acted_on), str(page.response.wsgi_request.user))
    assert entry.change_message in {
        "Made ready to run now.", "Postponed until 1 hour from now.", "Cancelled.", "Enqueued again.",
    }  # fmt: skip
    assert entry.content_type == ContentType.objects.get(app_label="django_pgqueue", model=url.split("/")[3])


def test_the_history_of_a_message_shows_who_did_what(root: Visitor, pages: dict[str, list[str]]) -> None:
    pk = selected(MESSAGES)
    root.act(MESSAGES, "run_now", [pk])
    history = root.open(f"{MESSAGES}{pk}/history/")
    assert "Made ready to run now." in history.root.one(id="change-history").text
    assert "root" in history.root.one(id="change-history").text


SECRET = "card 4711"


@pytest.fixture
def secrets(db: None) -> list[str]:
    """Pages that would show it."""
    content = f'{{"args": ["{SECRET}"], "kwargs": {{}}}}'
    send(content, queue="other", headers=f'{{"trace": "{SECRET}"}}')
    complete(claim("other")[0], f'"{SECRET}"')
    waiting = send(content, headers=f'{{"trace": "{SECRET}"}}')
    [held] = claim()
    retry(held, dequeue_at=2**50, state=f'["{SECRET}"]')
    [ended] = Attempt.objects.filter(final=True)
    return [f"{MESSAGES}{waiting}/change/", f"{ATTEMPTS}{ended.pk}/change/"]


def test_content_needs_its_own_permission(visitor: LogIn, secrets: list[str]) -> None:
    clerk = visitor(*sorted(ALL - {"see_content"}))
    for url in [*secrets, MESSAGES, ATTEMPTS]:
        assert SECRET not in clerk.client.get(url).content.decode(), url
    for url in secrets:
        assert "You have no permission to see this." in clerk.client.get(url).content.decode()


def test_the_content_permission_shows_all_content(visitor: LogIn, secrets: list[str]) -> None:
    clerk = visitor("view_message", "view_attempt", "see_content")
    message, attempt = (clerk.open(url).fields for url in secrets)
    for shown, names in ((message, ("content", "headers", "state")), (attempt, ("content", "headers", "result"))):
        assert [name for name in names if SECRET not in shown[name].text] == []


def test_only_permitted_buttons_are_shown(visitor: LogIn, pages: dict[str, list[str]]) -> None:
    url = f"{MESSAGES}{selected(MESSAGES)}/change/"
    for permissions, buttons in {
        (): [],
        ("run_message",): ["Run now"],
        ("change_message",): ["Postpone…"],
        ("cancel_message",): ["Cancel…"],
        ("change_message", "run_message", "cancel_message"): ["Run now", "Postpone…", "Cancel…"],
    }.items():
        assert visitor("view_message", *permissions).open(url).buttons == buttons


def test_saving_a_message_needs_the_change_permission(visitor: LogIn, pages: dict[str, list[str]]) -> None:
    pk = selected(MESSAGES)
    clerk = visitor(*sorted(ALL - {"change_message"}))
    assert clerk.open(f"{MESSAGES}{pk}/change/").form == {}
    answer = clerk.client.post(f"{MESSAGES}{pk}/change/", {"priority": 9, "dequeue_at": "0"})
    assert answer.status_code == 403
    assert Message.objects.get().priority == 0


@pytest.mark.parametrize(("url", "action"), ACTIONS)
def test_a_page_of_another_site_cannot_act(root: Visitor, pages: dict[str, list[str]], url: str, action: str) -> None:
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


def test_a_user_who_is_not_staff_is_asked_to_log_in(db: None, pages: dict[str, list[str]]) -> None:
    client = Client()
    client.force_login(User.objects.create_user("customer"))
    for url in [url for urls in pages.values() for url in urls]:
        assert client.get(url).url.startswith("/admin/login/"), url  # type: ignore[attr-defined]
