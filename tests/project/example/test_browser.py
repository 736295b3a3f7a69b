"""What a person sees: the shop and the admin in Chromium, with a worker that runs beside them."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.support.fixtures.browser import Page, chromium, page, place_an_order, shop, worker

__all__ = ["chromium", "page", "shop", "worker"]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


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


def test_the_admin_shows_the_job_as_scheduled_and_then_in_the_history(
    shop: Page, worker: None, django_user_model: type
) -> None:
    django_user_model.objects.create_superuser("admin", password="secret")  # type: ignore[attr-defined]
    place_an_order(shop)
    shop.press("Remind me in one minute")
    reminder = shop.job_becomes("Send reminder", "scheduled")[4]
    receipt = shop.job_becomes("Send receipt", "done")[4]

    shop.open(f"{reverse('admin:django_pgqueue_message_changelist')}?q={reminder}")
    shop.find("#id_username").send_keys("admin")
    shop.find("#id_password").send_keys("secret")
    shop.press("Log in")
    shop.shows(reminder, "send_reminder")
    assert shop.status_in_admin() == "scheduled"
    shop.save("admin-scheduled", 1600)

    shop.open(f"{reverse('admin:django_pgqueue_attempt_changelist')}?q={receipt}")
    shop.shows("send_receipt")
    assert shop.status_in_admin() == "succeeded"
    shop.save("admin-history", 1600)

    shop.open(reverse("admin:django_pgqueue_message_changelist"))
    shop.shows("send_reminder")
    shop.save("admin-messages", 1600)
    shop.open(reverse("admin:django_pgqueue_attempt_changelist"))
    shop.shows("send_receipt")
    shop.save("admin-attempts", 1600)
