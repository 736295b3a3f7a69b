"""What a person sees: the shop and the admin in Chromium, with a worker that runs beside them."""

from __future__ import annotations

import pytest
from django.urls import reverse

from example_project.shop.models import Order
from tests.support.fixtures.browser import Page, chromium, fill_in_an_order, page, place_an_order, shop, worker

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


def test_a_changed_mind_leaves_nothing(shop: Page) -> None:
    before = Order.objects.count()
    fill_in_an_order(shop)
    shop.press("Place it, then roll back")
    shop.shows("You changed your mind", "does not exist", "does not exist")
    shop.save("changed-mind")
    assert Order.objects.count() == before


def test_the_warehouse_picks_the_next_slip(shop: Page) -> None:
    shop.open(reverse("shop:warehouse"))
    shop.save("warehouse")
    oldest = Order.objects.last()
    assert oldest
    shop.press("Pick it and pack it")
    shop.shows(f"Order {oldest.pk} is packed", "Parcels", f"Order {oldest.pk}")
    shop.press("Pick it and put it back for 30 seconds")
    shop.shows("comes back in 30 seconds")
    shop.press("Pick it and report it damaged")
    shop.shows("has failed")
    shop.save("warehouse-picked")


def test_a_mistake_in_the_form_is_told_beside_its_field(shop: Page) -> None:
    shop.find("#id_email").clear()
    shop.find("#id_email").send_keys("nobody")
    shop.press("Place the order")
    shop.shows("Enter a valid email address.")
    shop.save("mistake")
    shop.complaints()  # the browser calls the answer 422 an error; it is what we wanted


def test_the_page_shows_its_code(shop: Page) -> None:
    shop.find("summary").click()
    shop.shows("def place_order", "with transaction.atomic():", "send_receipt.enqueue(order.pk)")
    shop.save("code")
