"""Each page needs its permission.  Whatever is done on one needs its own, a post and a token, and is logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest
from django.apps import apps
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_pgqueue import control, functions
from django_pgqueue.durable import emit
from django_pgqueue.models import Attempt, Binding, Channel, Edit, Exchange, Message, QueueState, Schedule
from tests.admin.test_schedule import GIVEN, by_hand
from tests.support.fixtures.admin import (
    ATTEMPTS,
    MESSAGES,
    WORKER,
    WORKERS,
    claim,
    complete,
    retry,
    send,
    sign_in,
    sql,
    visitor_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

    LogIn = Callable[..., Visitor]
    Keys = dict[str, str]

HERE = "/admin/django_pgqueue/"
HOUR_MS = 3_600_000
WRITTEN_BY_WORKERS = {"message": MESSAGES, "attempt": ATTEMPTS, "worker": WORKERS}

PAGES = [
    "overview/", "overview/live/", "message/", "message/?live={message}", "message/{message}/change/",
    "message/{message}/history/",
    "attempt/", "attempt/{attempt}/change/", "attempt/errors/", "attempt/edit/", "worker/",
    "worker/?live=worker-1", "worker/worker-1/change/",
    "edit/", "edit/{edit}/change/", "edit/{edit}/change/?live=page",
    "event/", "event/paid_3A7/change/",
    "reporthour/", "schedule/", "schedule/daily/change/", "queuestate/", "queuestate/going/change/",
    "channel/", "channel/acme/change/", "exchange/", "exchange/orders/change/?routing_key=x",
    "binding/", "binding/{binding}/change/",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that somebody does by a form or an action."""

    url: str
    data: dict[str, Any]
    needs: str
    key: str | None
    """The key of its row; None: of one that is made by it, as a binding with another pattern is another one."""
    about: str = ""
    """The model of the row, if it is not the one of the page."""

    @property
    def model(self) -> type[Any]:
        return apps.get_model("django_pgqueue", self.about or self.url.partition("/")[0])

    @property
    def flag(self) -> int:
        return {"add": ADDITION, "delete": DELETION}.get(self.url.split("/")[-2], CHANGE)

    def on(self, keys: Keys) -> tuple[str, dict[str, Any]]:
        """The URL and the data for these rows."""
        selected = self.data.get("_selected_action")
        return HERE + self.url.format_map(keys), self.data | (
            {"_selected_action": keys.get(selected, selected)} if selected else {}
        )


def action(model: str, name: str, key: str, needs: str) -> Deed:
    """An action for one row of a list, already confirmed; ``key`` may be a name of the fixture ``keys``."""
    row = {"action": name, "_selected_action": key, "index": 0, "select_across": 0}
    return Deed(f"{model}/", row | {"confirmed": "yes", "delay": "1 hour"}, needs, key)


DELETE = {"post": "yes"}
BOUND = {"exchange": "orders", "kind": "topic", "pattern": "order.#", "queue": "books", "priority": "3"}
EDITED = {"priority": "9", "dequeue_at": "0"}
ALL_OF_A_LIST = {"confirmed": "yes", "action": "enqueue_again"}
PAUSE = {"queue": "going", "action": "pause"}
LIMITED = {"name": "new", "max_concurrency": "2"}
DEEDS = {
    "a message is made ready": action("message", "run_now", "message", "run_message"),
    "a message is postponed": action("message", "postpone", "message", "change_message"),
    "a message is cancelled": action("message", "cancel", "message", "cancel_message"),
    "a message is changed": Deed("message/{message}/change/", EDITED, "change_message", "message"),
    "an ended message is enqueued again": action("attempt", "enqueue_again", "attempt", "run_message"),
    "a whole list is enqueued again": Deed(
        "attempt/edit/", ALL_OF_A_LIST, "view_attempt run_message", None, about="edit"
    ),
    "everything that matches is cancelled": Deed(
        "message/edit/", {"confirmed": "yes", "action": "cancel"}, "view_message cancel_message", None, about="edit"
    ),
    "a schedule is added": Deed("schedule/add/", GIVEN, "add_schedule", GIVEN["name"]),
    "a schedule is changed": Deed("schedule/daily/change/", GIVEN, "change_schedule see_content", "daily"),
    "a schedule is deleted": Deed("schedule/daily/delete/", DELETE, "delete_schedule", "daily"),
    "a schedule is paused": action("schedule", "pause", "daily", "change_schedule"),
    "a schedule is run now": action("schedule", "run_now", "daily", "run_message"),
    "an exchange is added": Deed("exchange/add/", {"name": "new"}, "add_exchange", "new"),
    "an exchange is deleted": Deed("exchange/orders/delete/", DELETE, "delete_exchange delete_binding", "orders"),
    "a binding is added": Deed("binding/add/", BOUND, "add_binding", None),
    "a binding is changed": Deed("binding/{binding}/change/", BOUND, "change_binding", None),
    "a binding is deleted": Deed("binding/{binding}/delete/", DELETE, "delete_binding", "binding"),
    "a channel's limits are set": Deed("channel/add/", LIMITED, "add_channel", "new"),
    "a channel's limits are changed": Deed("channel/acme/change/", {"max_concurrency": "9"}, "change_channel", "acme"),
    "a channel is released": action("channel", "release", "acme", "change_channel"),
    "a new queue is paused": Deed("queuestate/add/", {"name": "new"}, "add_queuestate", "new"),
    "a queue is paused": action("queuestate", "pause", "going", "change_queuestate"),
    "a queue is resumed": action("queuestate", "resume", "paused", "change_queuestate"),
    "a queue is paused on the overview": Deed(
        "overview/act/", PAUSE, "view_overview change_queuestate", "going", about="queuestate"
    ),
}
each_deed = pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)


@pytest.fixture
def keys(db: None) -> Keys:
    """The ids of rows, among one of each model."""
    sign_in()
    functions.exchange_declare(connection, "orders")
    bound = functions.KnownBinding(exchange="orders", pattern="#", queue="all")
    binding, _ = functions.binding_declare(connection, bound)
    control.set_channel("acme", max_concurrency=1)
    for queue in ("going", "paused"):
        control.pause(queue, by="Ada")
    control.resume("going")
    by_hand("daily")
    emit("paid:7")
    send(queue="other")
    complete(claim("other")[0])
    message = send(delay_ms=HOUR_MS)
    edit = control.edit("delete", control.Filter(queue="nobody's"))
    return {
        "edit": str(edit),
        "message": str(message),
        "attempt": str(Attempt.objects.get().pk),
        "binding": str(binding),
    }


def everybody_else(lacked: str) -> Visitor:
    """Somebody who may do whatever else there is, to all models of the queue."""
    may, _, model = lacked.partition("_")
    lacks = {lacked, f"change_{model}"} if may == "view" else {lacked}  # a change shows the row
    user = User.objects.create_user(f"all but {lacked}", is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label="django_pgqueue")
    user.user_permissions.set(permissions.exclude(codename__in=lacks))
    return visitor_of(user)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_its_permission_and_offers_nothing_by_it(visitor: LogIn, keys: Keys, page: str) -> None:
    url = HERE + page.format_map(keys)
    needs = [f"view_{page.partition('/')[0]}", *(["run_message"] if page == "attempt/edit/" else [])]
    shown = visitor(*needs).open(url)
    assert shown.actions == []
    boxes = [box for box in shown.root.all("input", type="checkbox") if box.attributes["name"] != "columns"]
    assert shown.root.all("input", name="_save") == boxes == []
    for lacked in needs:
        other = everybody_else(lacked).client
        assert other.get(url).status_code == 403
        assert other.post(url).status_code in {403, 405}
        assert f'"{url}"' not in other.get("/admin/").content.decode()
    customer = visitor_of(User.objects.create_user("customer")).client
    for client in (customer, Client()):
        assert client.get(url).url.startswith("/admin/login/")  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [page for page in PAGES if "live" not in page])
def test_a_page_links_to_no_page_that_the_user_may_not_see(visitor: LogIn, keys: Keys, page: str) -> None:
    control.run_schedule("daily")
    url = HERE + page.format_map(keys)
    clerk = visitor(f"view_{page.partition('/')[0]}", *(["run_message"] if page == "attempt/edit/" else []))
    links = {link.attributes.get("href", "") for link in clerk.open(url).root.all("a")}
    linked = {urljoin(url, link) for link in links if not link.startswith("#")}
    answers = {link: clerk.client.get(link).status_code for link in linked if link.startswith(HERE)}
    assert [link for link, code in answers.items() if code >= 400] == []


def state() -> list[Any]:
    return [
        *(
            list(model.objects.order_by("pk").values_list())
            for model in (Message, Attempt, Edit, Schedule, Exchange, Binding)
        ),
        *Channel.objects.order_by("pk").values_list("pk", "max_concurrency", "released_at"),
        *QueueState.objects.order_by("pk").values_list("pk", "paused_at"),
    ]


@each_deed
def test_an_action_without_one_of_its_permissions_does_nothing(keys: Keys, deed: Deed) -> None:
    before, (url, data) = state(), deed.on(keys)
    for lacked in deed.needs.split():
        clerk = everybody_else(lacked)
        for more in ({}, {"select_across": 1}, {"confirmed": ""}):
            clerk.client.post(url, data | more)
        if "_selected_action" in data:
            assert data["action"] not in clerk.open(url).actions
        assert state() == before
        assert not LogEntry.objects.exists()


@each_deed
def test_an_action_needs_only_its_permissions_and_is_logged(visitor: LogIn, keys: Keys, deed: Deed) -> None:
    (url, data), before, there = deed.on(keys), state(), set(deed.model.objects.values_list("pk", flat=True))
    clerk = visitor(*{f"view_{deed.url.partition('/')[0]}", *deed.needs.split()})
    if "_selected_action" in data:
        assert data["action"] in clerk.open(url).actions
    assert clerk.client.post(url, data).status_code == 302
    assert state() != before
    entry = LogEntry.objects.get()
    assert entry.user.get_username() == str(clerk.client.get(HERE).wsgi_request.user)
    assert (entry.action_flag, entry.content_type and entry.content_type.model_class()) == (deed.flag, deed.model)
    made = set(deed.model.objects.values_list("pk", flat=True)) - there
    assert entry.object_id == (str(*made) if deed.key is None else keys.get(deed.key, deed.key))


@each_deed
def test_an_action_needs_a_token_and_a_post(root: Visitor, keys: Keys, deed: Deed) -> None:
    before, (url, data) = state(), deed.on(keys)
    client = Client(enforce_csrf_checks=True)
    client.cookies = root.client.cookies
    assert client.post(url, data).status_code == 403
    client.get(url, data)
    assert state() == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("model", WRITTEN_BY_WORKERS)
def test_rows_that_workers_write_cannot_be_added_edited_or_deleted(root: Visitor, keys: Keys, model: str) -> None:
    url = WRITTEN_BY_WORKERS[model]
    row = f"{url}{keys.get(model, WORKER)}/"
    assert root.client.get(f"{url}add/").status_code == 403
    assert root.client.post(f"{url}add/", {}).status_code == 403
    assert root.client.post(f"{row}delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in root.open(url).actions
    assert model == "message" or root.client.post(f"{row}change/", {}).status_code == 403


GONE = {
    "message": "run_now", "attempt": "enqueue_again", "worker": "pause", "queuestate": "pause", "channel": "release",
    "schedule": "run_now", "edit": "stop",
}  # fmt: skip
SAID_OF_GONE = (
    "What you selected is not there any more.", "no longer in the queue", "not enqueued again",
    "Items must be selected",
)  # fmt: skip


@pytest.mark.parametrize(("model", "name"), GONE.items())
def test_an_action_for_a_row_that_is_gone_says_so(root: Visitor, keys: Keys, model: str, name: str) -> None:
    before = state()
    for key in ("4711", "\0", "x"):
        said = root.act(f"{HERE}{model}/", name, [key]).said
        assert len(said) == 1, key
        assert any(words in said[0] for words in SAID_OF_GONE), key
    assert state() == before
    assert not LogEntry.objects.exists()


def test_an_action_takes_a_row_that_the_filters_of_the_list_do_not_find_any_more(root: Visitor, keys: Keys) -> None:
    control.pause_schedule("daily")
    said = root.act(f"{HERE}schedule/?paused=no", "pause", ["daily"]).said
    assert said == ["Not changed: 1 schedule (daily), already paused."]


def test_the_index_offers_change_only_where_a_change_is_possible(root: Visitor, db: None) -> None:
    index = root.open(HERE).root

    def linked(kind: str) -> set[str]:
        return {link.attributes["href"].split("/")[3] for link in index.all("a", class_=kind)}

    assert linked("viewlink") == {"attempt", "edit", "event", "exchange", "overview", "reporthour"}
    assert linked("changelink") == {"binding", "channel", "message", "queuestate", "schedule", "worker"}


def test_the_history_of_a_message_shows_who_did_what(root: Visitor, keys: Keys) -> None:
    root.act(MESSAGES, "run_now", [int(keys["message"])])
    history = root.open(f"{MESSAGES}{keys['message']}/history/").root.one(id="change-history").text
    assert "Made ready to run now." in history
    assert "root" in history


SECRET = "card 4711"


@pytest.fixture
def secrets(db: None) -> list[str]:
    """Pages that would show it."""
    content = f'{{"args": ["{SECRET}"], "kwargs": {{}}}}'
    send(content, queue="other", headers=f'{{"trace": "{SECRET}"}}')
    complete(claim("other")[0], f'"{SECRET}"')
    waiting = send(content, headers=f'{{"trace": "{SECRET}", "schedule": "{SECRET}"}}')
    [held] = claim()
    retry(held, dequeue_at=2**50, state=f'["{SECRET}"]')
    [ended] = Attempt.objects.filter(final=True)
    return [f"{MESSAGES}{waiting}/change/", f"{ATTEMPTS}{ended.pk}/change/"]


def test_content_needs_its_own_permission(visitor: LogIn, secrets: list[str]) -> None:
    clerk = everybody_else("see_content")
    for url in [*secrets, MESSAGES, ATTEMPTS]:
        assert SECRET not in clerk.client.get(url).content.decode(), url
    for url in secrets:
        assert "You have no permission to see this." in clerk.client.get(url).content.decode()
    auditor = visitor("view_message", "view_attempt", "see_content")
    message, attempt = (auditor.open(url).fields for url in secrets)
    for shown, names in ((message, ("content", "headers", "state")), (attempt, ("content", "headers", "result"))):
        assert [name for name in names if SECRET not in shown[name].text] == []


def test_only_permitted_buttons_are_shown(visitor: LogIn, keys: Keys) -> None:
    url = f"{MESSAGES}{keys['message']}/change/"
    for permissions, buttons in {
        (): [],
        ("run_message",): ["Run now"],
        ("change_message",): ["Postpone…"],
        ("cancel_message",): ["Cancel…"],
        ("change_message", "run_message", "cancel_message"): ["Run now", "Postpone…", "Cancel…"],
    }.items():
        assert visitor("view_message", *permissions).open(url).buttons == buttons


def test_a_login_to_the_database_without_the_right_is_told_so(root: Visitor) -> None:
    """Such as that of a site whose admin only shows the queue."""
    pk = send(delay_ms=HOUR_MS)
    for statement in (
        "create role pgqueue_test_clerk",
        "grant select on all tables in schema public to pgqueue_test_clerk",
        "grant insert, update, delete on django_session, auth_user to pgqueue_test_clerk",
        "set local role pgqueue_test_clerk",
    ):
        sql(statement)
    page = root.client.post(MESSAGES, {"action": "run_now", "_selected_action": pk, "index": 0}, follow=True)
    [note] = page.context["messages"]
    denied = "has no right to do this: permission denied for table pgqueue_message. Nothing was changed."
    assert str(note) == f"The login of this site to PostgreSQL {denied}"


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (f"{MESSAGES}?live=1", 503),
        ("/admin/django_pgqueue/overview/live/", 503),
        ("/admin/django_pgqueue/overview/", 200),
    ],
)
def test_a_login_to_the_database_that_may_not_read_is_told_so(root: Visitor, url: str, status: int) -> None:
    """On a page that was loaded before the right was taken away, too."""
    for statement in (
        "create role pgqueue_test_clerk",
        "grant select on all tables in schema public to pgqueue_test_clerk",
        "revoke select on pgqueue_message from pgqueue_test_clerk",
        "set local role pgqueue_test_clerk",
    ):
        sql(statement)
    answer = root.client.get(url)
    assert answer.status_code == status
    assert "has no right to do this: permission denied for table pgqueue_message" in answer.content.decode()
