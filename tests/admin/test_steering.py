"""All that is done on the pages of exchanges, bindings, channels and queues needs its permission and is logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_pgqueue import control, functions
from django_pgqueue.models import Binding, Channel, Exchange, QueueState
from tests.support.fixtures.admin import visitor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

    LogIn = Callable[..., Visitor]

HERE = "/admin/django_pgqueue/"
BOUND = {"exchange": "orders", "kind": "topic", "pattern": "order.#", "queue": "books", "priority": "3"}


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that somebody does by a form or an action."""

    url: str
    data: dict[str, Any]
    needs: tuple[str, ...]
    key: str | None
    """Of the row that it is about; None: one that is made by it, as a binding with another pattern is another one."""
    flag: int
    model: type[Any]


def action(name: str, key: str) -> dict[str, Any]:
    return {"action": name, "_selected_action": [key], "index": 0, "select_across": 0}


DEEDS = {
    "an exchange is added": Deed("exchange/add/", {"name": "new"}, ("add_exchange",), "new", ADDITION, Exchange),
    "an exchange is deleted": Deed(
        "exchange/orders/delete/", {"post": "yes"}, ("delete_exchange", "delete_binding"), "orders", DELETION, Exchange
    ),
    "a binding is added": Deed("binding/add/", BOUND, ("add_binding",), None, ADDITION, Binding),
    "a binding is changed": Deed("binding/{binding}/change/", BOUND, ("change_binding",), None, CHANGE, Binding),
    "a binding is deleted": Deed(
        "binding/{binding}/delete/", {"post": "yes"}, ("delete_binding",), "{binding}", DELETION, Binding
    ),
    "a channel's limits are set": Deed(
        "channel/add/", {"name": "new", "max_concurrency": "2"}, ("add_channel",), "new", ADDITION, Channel
    ),
    "a channel's limits are changed": Deed(
        "channel/acme/change/", {"max_concurrency": "9"}, ("change_channel",), "acme", CHANGE, Channel
    ),
    "a channel is released": Deed("channel/", action("release", "acme"), ("change_channel",), "acme", CHANGE, Channel),
    "a new queue is paused": Deed("queuestate/add/", {"name": "new"}, ("add_queuestate",), "new", ADDITION, QueueState),
    "a queue is paused": Deed(
        "queuestate/", action("pause", "going"), ("change_queuestate",), "going", CHANGE, QueueState
    ),
    "a queue is resumed": Deed(
        "queuestate/", action("resume", "paused"), ("change_queuestate",), "paused", CHANGE, QueueState
    ),
}
pytestmark = pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)


@pytest.fixture
def binding(db: None) -> str:
    """Its id, among one of each."""
    functions.exchange_declare(connection, "orders")
    made, _ = functions.binding_declare(connection, functions.KnownBinding(exchange="orders", pattern="#", queue="all"))
    control.set_channel("acme", max_concurrency=1)
    for queue in ("going", "paused"):
        control.pause(queue, by="Ada")
    control.resume("going")
    return str(made)


def state() -> list[Any]:
    return [
        *Exchange.objects.order_by("pk").values_list(),
        *Binding.objects.order_by("pk").values_list(),
        *Channel.objects.order_by("pk").values_list("pk", "max_concurrency", "released_at"),
        *QueueState.objects.order_by("pk").values_list("pk", "paused_at"),
    ]


def do(client: Client, deed: Deed, binding: str) -> int:
    return client.post(f"{HERE}{deed.url.format(binding=binding)}", deed.data).status_code


def test_an_action_without_its_permission_does_nothing(binding: str, deed: Deed) -> None:
    """Whatever else somebody may do, to all models of the queue."""
    others = Permission.objects.filter(content_type__app_label="django_pgqueue").exclude(codename__in=deed.needs)
    before = state()
    user = User.objects.create_user("everything else", is_staff=True)
    user.user_permissions.set(others)
    do(visitor_of(user).client, deed, binding)
    assert state() == before
    assert not LogEntry.objects.exists()


def test_an_action_needs_only_its_permission_and_is_logged(visitor: LogIn, binding: str, deed: Deed) -> None:
    before = state()
    clerk = visitor(f"view_{deed.model._meta.model_name}", *deed.needs)
    assert do(clerk.client, deed, binding) == 302
    assert state() != before
    entry = LogEntry.objects.get()
    assert entry.user.get_username() == str(clerk.client.get(HERE).wsgi_request.user)
    assert (entry.action_flag, entry.content_type and entry.content_type.model_class()) == (deed.flag, deed.model)
    made = Binding.objects.exclude(pk=binding).values_list("pk", flat=True).first()
    assert entry.object_id == (str(made) if deed.key is None else deed.key.format(binding=binding))


def test_an_action_needs_a_token_and_a_post(root: Visitor, binding: str, deed: Deed) -> None:
    before = state()
    client = Client(enforce_csrf_checks=True)
    client.cookies = root.client.cookies
    assert do(client, deed, binding) == 403
    client.get(f"{HERE}{deed.url.format(binding=binding)}", deed.data)
    assert state() == before
    assert not LogEntry.objects.exists()
