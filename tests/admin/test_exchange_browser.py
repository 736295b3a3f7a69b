"""The pages of exchanges and bindings in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Binding
from django_pgqueue.routing import Exchange
from tests.admin.test_browser import chromium, looked_at, page
from tests.admin.test_exchange import BINDINGS, EXCHANGES, ORDERS
from tests.support.site import subscribers

if TYPE_CHECKING:
    from tests.support.fixtures import browser

__all__ = ["chromium", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


@pytest.fixture
def orders(transactional_db: None) -> None:
    exchange = Exchange("orders")
    exchange.declare()
    exchange.bind("order.#", task=subscribers.audit)
    exchange.bind("order.created", task=subscribers.mail)
    exchange.bind(r"^order\.(created|paid)$", queue="books", regex=True)
    exchange.bind("#", queue="warehouse", priority=5)
    exchange.bind("invoice.*.paid", queue="books")
    Exchange("invoices").declare()


@pytest.mark.usefixtures("orders")
def test_a_routing_key_is_asked_for_in_the_box(page: browser.Page) -> None:
    page.open(EXCHANGES)
    page.shows("invoices", "orders", "2 exchanges")
    looked_at(page, "exchange-list")
    page.open(ORDERS)
    page.find("[name=routing_key]").send_keys("order.created")
    page.press("Show")
    page.shows("books", "warehouse")
    assert page.find("[name=routing_key]").get_attribute("value") == "order.created"
    looked_at(page, "exchange")


@pytest.mark.usefixtures("orders")
def test_a_binding_is_made_in_the_browser_and_a_mistake_is_told(page: browser.Page) -> None:
    page.open(BINDINGS)
    page.shows("(regular expression)")
    looked_at(page, "binding-list")
    page.open(f"{BINDINGS}add/")
    page.find("[name=pattern]").send_keys("order.*x")
    page.find("[name=queue]").send_keys("shelf")
    page.press("Save")
    page.shows("whole words")
    looked_at(page, "binding-mistake")
    page.find("[name=pattern]").clear()
    page.find("[name=pattern]").send_keys("order.*.x")
    page.press("Save")
    page.shows("order.*.x")
    assert Binding.objects.get(queue="shelf").pattern == "order.*.x"
