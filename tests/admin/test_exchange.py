"""Exchanges and bindings are listed and edited, and a box shows where a routing key leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote

from django_pgqueue.models import Binding, Exchange
from django_pgqueue.routing import Exchange as To, declare_binding
from django_pgqueue.routing.declared import DECLARED
from django_pgqueue.routing.sync import synchronise
from tests.support.fixtures.admin import sql
from tests.support.site import subscribers

if TYPE_CHECKING:
    from tests.support.admin_page import Page, Visitor

EXCHANGES, BINDINGS = "/admin/django_pgqueue/exchange/", "/admin/django_pgqueue/binding/"
ORDERS = f"{EXCHANGES}orders/change/"
GIVEN = {
    "exchange": "orders",
    "kind": "topic",
    "pattern": "order.*.paid",
    "queue": "books",
    "task": "",
    "priority": "7",
    "max_attempts": "",
}


@pytest.fixture(autouse=True)
def orders(db: None, monkeypatch: pytest.MonkeyPatch) -> To:
    for said, nothing in (("exchanges", set()), ("bindings", {}), ("subscriptions", {})):
        monkeypatch.setattr(DECLARED, said, nothing)
    exchange = To("orders")
    exchange.declare()
    return exchange


def change_page(pattern: str = "order.#", page: str = "change") -> str:
    return f"{BINDINGS}{Binding.objects.get(pattern=pattern).pk}/{page}/"


def errors(page: Page) -> str:
    return " ".join(each.text for each in page.root.all("ul", class_="errorlist"))


def save(visitor: Visitor, url: str, **changes: Any) -> Any:
    return visitor.client.post(url, GIVEN | changes)


def declare(pattern: str = "#") -> None:
    declare_binding("orders", pattern, queue="declared")
    synchronise("default", prune=False)


class TestExchanges:
    def test_exchanges_are_listed_with_the_number_of_bindings(self, root: Visitor, orders: To) -> None:
        orders.bind("#", queue="a")
        orders.bind("#", queue="b")
        To("a/b <i>").declare()
        page = root.open(EXCHANGES)
        assert page.rows == [
            {"name": "a/b <i>", "bindings": "0", "declared": "by hand"},
            {"name": "orders", "bindings": "2", "declared": "by hand"},
        ]
        link = page.cells[1]["bindings"].one("a").attributes["href"]
        assert len(root.open(link).rows) == 2

    def test_an_exchange_is_added_and_deleted_with_its_bindings(self, root: Visitor, orders: To) -> None:
        assert root.client.post(f"{EXCHANGES}add/", {"name": "invoices"}).status_code == 302
        orders.bind("#", queue="a")
        asks = root.open(f"{EXCHANGES}orders/delete/")
        assert "orders '#' → a" in asks.root.text
        assert root.client.post(f"{EXCHANGES}orders/delete/", {"post": "yes"}).status_code == 302
        assert list(Exchange.objects.values_list("name", flat=True)) == ["invoices"]
        assert not Binding.objects.exists()
        assert LogEntry.objects.count() == 2

    @pytest.mark.parametrize(("name", "said"), [("orders", "already"), ("x" * 256, "255 bytes"), ("", "required")])
    def test_an_invalid_name_is_an_error_of_its_field(self, root: Visitor, name: str, said: str) -> None:
        page = root.client.post(f"{EXCHANGES}add/", {"name": name})
        assert said in page.content.decode()


class TestBox:
    def ask(self, visitor: Visitor, routing_key: str, url: str = ORDERS) -> list[list[str]]:
        section = visitor.open(url, routing_key=routing_key).root.one("section", class_="pgqueue-route")
        [*tables] = section.all("table")
        return [[cell.text for cell in row.all("td")] for table in tables for row in table.one("tbody").all("tr")]

    def test_the_box_shows_who_would_get_a_message_and_why(self, root: Visitor, orders: To) -> None:
        orders.bind("order.#", queue="books", priority=3)
        orders.bind("d$", queue="books", regex=True)
        orders.bind("order.*", task=subscribers.mail)
        orders.bind("invoice.#", queue="elsewhere")
        assert self.ask(root, "order.paid") == [
            ["books", "raw message", "d$, order.#", "3", "5"],
            ["mail", "mail tests.support.site.subscribers", "order.*", "7", "3"],
        ]
        assert sql("select count(*) from pgqueue_message") == [(0,)], "asking changes nothing"

    def test_a_routing_key_without_a_matching_binding_is_noted(self, root: Visitor) -> None:
        assert root.open(ORDERS).notes == []
        page = root.open(ORDERS, routing_key="order.paid")
        assert page.notes == ["No binding matches: the exchange would drop a message with this routing key."]

    def test_the_empty_routing_key_is_valid(self, root: Visitor, orders: To) -> None:
        orders.bind("#", queue="all")
        orders.bind("", queue="none")
        assert [row[0] for row in self.ask(root, "")] == ["all", "none"]

    @pytest.mark.parametrize("key", ["x" * 256, "ä" * 200, "a\x00b"])
    def test_an_invalid_routing_key_is_an_error(self, root: Visitor, key: str) -> None:
        page = root.open(ORDERS, routing_key=key)
        assert errors(page)
        assert page.root.one("section", class_="pgqueue-route").all("table") == []

    def test_the_routing_key_is_escaped(self, root: Visitor, orders: To) -> None:
        orders.bind("<b>", queue="<i>")
        page = root.client.get(ORDERS, {"routing_key": "<b>"}).content.decode()
        assert "<b>" not in page
        assert "&lt;b&gt;" in page
        assert "&lt;i&gt;" in page

    def test_an_exchange_may_have_any_name(self, root: Visitor) -> None:
        name = "a/b c?d&e=#%_ü"
        To(name).declare()
        To(name).bind("#", queue="all")
        assert self.ask(root, "x", f"{EXCHANGES}{quote(name)}/change/")[0][0] == "all"


class TestBindings:
    def test_each_binding_is_listed_with_its_target(self, root: Visitor, orders: To) -> None:
        orders.bind("order.#", queue="books", priority=3, max_attempts=None)
        orders.bind("d$", task=subscribers.mail, regex=True)
        declare()
        orders.bind("", queue="books")
        assert [list(row.values()) for row in root.open(BINDINGS).rows] == [
            ["(no word)", "orders", "books", "raw message", "0", "5", "by hand"],
            ["#", "orders", "declared", "raw message", "0", "5", "in code"],
            ["d$ (regular expression)", "orders", "mail", "mail tests.support.site.subscribers", "7", "3", "by hand"],
            ["order.#", "orders", "books", "raw message", "3", "-", "by hand"],
        ]
        assert root.open(BINDINGS, q="books").column("pattern") == ["(no word)", "order.#"]
        assert root.open(BINDINGS, declared="code").column("queue") == ["declared"]

    def test_a_binding_is_added_changed_and_deleted(self, root: Visitor) -> None:
        assert save(root, f"{BINDINGS}add/").status_code == 302
        binding = Binding.objects.get()
        assert (binding.pattern, binding.queue, binding.priority, binding.max_attempts, binding.declared) == (
            "order.*.paid", "books", 7, None, False,
        )  # fmt: skip
        assert binding.regex
        assert save(root, change_page("order.*.paid"), priority="1").status_code == 302
        assert Binding.objects.get().pk == binding.pk
        assert save(root, change_page("order.*.paid"), pattern="order.#", queue="other").status_code == 302
        assert Binding.objects.values_list("pattern", "queue", "regex").get() == ("order.#", "other", None)
        assert root.client.post(change_page(page="delete"), {"post": "yes"}).status_code == 302
        assert not Binding.objects.exists()

    def test_a_binding_takes_the_queue_of_its_task(self, root: Visitor) -> None:
        save(root, f"{BINDINGS}add/", task=subscribers.mail.module_path, queue="")
        assert Binding.objects.values_list("queue", "task").get() == ("mail", subscribers.mail.module_path)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"pattern": "order.*x"}, "whole words"),
            ({"pattern": "(", "kind": "regex"}, "parentheses"),
            ({"pattern": r"(a)\1", "kind": "regex"}, "back-reference"),
            ({"pattern": "(" + "a?" * 38 + "){13}", "kind": "regex"}, "may be at most 1,000"),
            ({"pattern": "x" * 256}, "255 bytes"),
            ({"queue": ""}, "Give a queue or a task"),
            ({"queue": "x" * 256}, "at most 255"),
            ({"task": "tests.support.site.subscribers.nothing"}, "no "),
            ({"task": subscribers.takes_one.module_path}, "content, routing_key"),
            ({"exchange": "nowhere"}, "Select a valid choice"),
            ({"priority": "101"}, "less than or equal to 100"),
            ({"max_attempts": "0"}, "whole number from 1"),
            ({"pattern": "there"}, "binding exists already"),
        ],
    )
    def test_an_invalid_binding_is_an_error_and_nothing_is_saved(
        self, root: Visitor, orders: To, changes: dict[str, str], said: str
    ) -> None:
        orders.bind("there", queue="books")
        page = save(root, f"{BINDINGS}add/", **changes)
        assert page.status_code == 200
        assert said in page.content.decode()
        assert Binding.objects.count() == 1

    def test_a_declared_binding_is_read_only(self, root: Visitor) -> None:
        declare()
        page = root.open(change_page("#"))
        assert page.fields["declared"].text == "in code"
        assert root.client.post(change_page("#"), GIVEN).status_code == 403
        assert root.client.post(change_page("#", "delete"), {"post": "yes"}).status_code == 403
        DECLARED.bindings.clear()
        assert root.client.post(change_page("#", "delete"), {"post": "yes"}).status_code == 302

    def test_nothing_is_deleted_in_bulk(self, root: Visitor, orders: To) -> None:
        orders.bind("order.#", queue="books")
        assert "delete_selected" not in root.open(BINDINGS).actions + root.open(EXCHANGES).actions
