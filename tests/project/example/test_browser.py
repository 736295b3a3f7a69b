"""The shop in Chromium, with a worker that runs beside it."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.support.fixtures.browser import Page, chromium, page, place_an_order, shop, worker

__all__ = ["chromium", "page", "shop", "worker"]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_an_order_is_placed_and_its_receipt_arrives(shop: Page, worker: None) -> None:
    shop.save("shop")
    shop.save("shop-dark", dark=True)
    shop.save("shop-narrow", 400)
    assert shop.unlabelled() == []

    order = place_an_order(shop)
    shop.shows(f"Order {order.pk}", "HARBOUR TEA", f"Receipt for order {order.pk}")

    shop.press("Book the courier")
    assert shop.job_becomes("Book courier", "retrying")[3].startswith("The courier's line is busy")
    shop.save("order-retrying")
    shop.press("Remind me in one minute")
    shop.press("Price it in other currencies")
    shop.press("Redeem an old voucher")
    assert "USD" in shop.job_becomes("Quote currencies", "done")[3]
    assert "has expired" in shop.job_becomes("Redeem voucher", "failed")[3]
    assert shop.job_becomes("Book courier", "done")[2] == "3"
    assert shop.job_becomes("Send reminder", "scheduled")[2] == "0"
    shop.save("order")
    shop.save("order-dark", dark=True)
    shop.save("order-narrow", 400)

    shop.open(reverse("shop:orders"))
    shop.shows("Recent orders", f"Order {order.pk}", "sent")
    shop.save("orders")
