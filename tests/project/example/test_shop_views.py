"""The shop's pages on a real database: what an order commits, and what becomes of its jobs."""

from __future__ import annotations

import datetime as dt
import io
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.urls import reverse

from django_pgqueue import testing
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.models import Attempt, Message
from django_pgqueue.queue import Queue
from example_project.shop.announcements import SCREENS, announce, show
from example_project.shop.checkout import place_order
from example_project.shop.models import CourierBooking, Order, Parcel, Product, Quote, Receipt, SalesReport
from example_project.shop.tasks import send_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client

pytestmark = pytest.mark.django_db(transaction=True)

SEND_RECEIPT = "example_project.shop.tasks.send_receipt"
BOOK_COURIER = "example_project.shop.tasks.book_courier"


@pytest.fixture
def tea() -> Product:
    return Product.objects.create(
        name="Sencha", slug="sencha", description="Green.", price=Decimal("4.50"), colour="#234"
    )


@pytest.fixture
def clock() -> Iterator[testing.Clock]:
    with testing.clock() as clock:
        yield clock


@pytest.fixture
def order(tea: Product) -> Order:
    return place_order("Ada", "ada@example.com", {tea: 2})


def form_data(tea: Product, quantity: object = 2, **more: str) -> dict[str, str]:
    return {"customer": "Ada", "email": "ada@example.com", f"quantity_{tea.pk}": str(quantity), **more}


def waiting() -> list[tuple[str, str | None]]:
    return list(Message.objects.order_by("id").values_list("queue", "task"))


# Placing an order


def test_an_order_its_jobs_and_its_slip_commit_together(client: Client, tea: Product) -> None:
    response = client.post(reverse("shop:home"), form_data(tea))
    order = Order.objects.get()
    assert response.headers["Location"] == order.get_absolute_url()
    assert order.total == Decimal("9.00")
    assert waiting() == [("mail", SEND_RECEIPT), ("warehouse", None)]
    assert Message.objects.get(task=SEND_RECEIPT).content["args"] == [order.pk]


def test_a_changed_mind_leaves_neither_order_nor_job(client: Client, tea: Product) -> None:
    response = client.post(reverse("shop:home"), form_data(tea, change_mind=""), follow=True)
    assert not Order.objects.exists()
    assert waiting() == []
    assert testing.drain() == []
    assert mail.outbox == []
    assert response.content.decode().count("does not exist") == 2


def test_the_page_about_the_changed_mind_claims_only_what_it_finds(client: Client, order: Order) -> None:
    job = order.jobs.first()
    assert job
    page = client.get(reverse("shop:changed_mind", args=[order.pk, job.result_id])).content.decode()
    assert "does not exist" not in page


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"quantity": "0"}, "Your basket is empty"),
        ({"quantity": ""}, "Your basket is empty"),
        ({"quantity": "-1"}, "greater than or equal to 0"),
        ({"quantity": "x"}, "whole number"),
        ({"email": "nobody"}, "Enter a valid email address."),
    ],
)
def test_an_invalid_order_is_refused(client: Client, tea: Product, data: dict[str, str], complaint: str) -> None:
    response = client.post(reverse("shop:home"), form_data(tea, **data))
    assert response.status_code == 422
    assert complaint in response.content.decode()
    assert waiting() == []


# Its jobs


def test_the_receipt_is_mailed_and_kept(order: Order) -> None:
    testing.drain(queues=["mail"])
    (message,) = mail.outbox
    assert message.to == ["ada@example.com"]
    assert "2 x Sencha, EUR 9.00" in message.body
    assert order.receipt.text == message.body


def test_a_receipt_is_mailed_once_although_its_job_runs_twice(order: Order) -> None:
    again = send_receipt.enqueue(order.pk)
    testing.drain(queues=["mail"])
    again.refresh()
    assert again.return_value == "was sent before"
    assert len(mail.outbox) == 1
    assert Receipt.objects.count() == 1


def test_no_receipt_is_kept_that_could_not_be_mailed(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("example_project.shop.tasks.send_mail", fail)
    testing.drain(queues=["mail"])
    assert not Receipt.objects.exists()
    assert Message.objects.filter(task=SEND_RECEIPT).exists(), "it is tried again"


@pytest.fixture
def ask_for(client: Client, order: Order) -> Callable[[str], Any]:
    """Press one of the order's buttons; the job that this enqueues."""

    def press(job: str) -> Any:
        response = client.post(reverse("shop:order_job", args=[order.pk]), {"job": job})
        assert response.headers["Location"] == order.get_absolute_url()
        return order.jobs.latest("pk")

    return press


def test_the_courier_succeeds_at_the_third_attempt(
    clock: testing.Clock, client: Client, order: Order, ask_for: Callable[[str], Any]
) -> None:
    ask_for("book")
    for calls in (1, 2):
        (tried,) = testing.drain(queues=["default"])
        assert tried.status == TaskResultStatus.READY, "it is tried again"
        page = client.get(order.get_absolute_url()).content.decode()
        assert "retrying" in page
        assert f"busy (call {calls}). Next at" in page
        clock.advance(dt.timedelta(seconds=10))
    (booked,) = testing.drain(queues=["default"])
    assert booked.return_value == f"booked as {order.courierbooking.tracking_code}"
    assert CourierBooking.objects.get().attempts == 3
    statuses = Attempt.objects.filter(task=BOOK_COURIER).order_by("id").values_list("status", flat=True)
    assert list(statuses) == ["retried", "retried", "succeeded"]


def test_a_reminder_waits_for_its_minute(
    clock: testing.Clock, client: Client, order: Order, ask_for: Callable[[str], Any]
) -> None:
    job = ask_for("remind")
    testing.drain(queues=["mail"])
    assert len(mail.outbox) == 1, "the receipt only"
    page = client.get(order.get_absolute_url()).content.decode()
    assert "scheduled" in page
    assert re.search(r"for \d+ [A-Z][a-z]+, \d\d:\d\d:\d\d UTC", page), "with its day: it may not be today"
    due = Message.objects.get(pk=job.result_id).dequeue_at - Message.objects.get(pk=job.result_id).created_at
    assert abs(due - dt.timedelta(minutes=1)) < dt.timedelta(milliseconds=2)
    clock.advance(dt.timedelta(seconds=61))
    testing.drain(queues=["mail"])
    assert [message.subject for message in mail.outbox] == [f"Your receipt for order {order.pk}", "Time for tea"]


def test_an_async_job_quotes_other_currencies(client: Client, order: Order, ask_for: Callable[[str], Any]) -> None:
    ask_for("quote")
    testing.drain(queues=["default"])
    assert {quote.currency: quote.amount for quote in Quote.objects.all()} == {
        "GBP": Decimal("7.56"),
        "JPY": Decimal("1453.50"),
        "USD": Decimal("9.81"),
    }
    assert "GBP 7.56, JPY 1453.50, USD 9.81" in client.get(order.get_absolute_url()).content.decode()


def test_an_expired_voucher_fails_for_good(client: Client, order: Order, ask_for: Callable[[str], Any]) -> None:
    job = ask_for("redeem")
    testing.drain(queues=["default"])
    assert not Message.objects.filter(pk=job.result_id).exists()
    page = client.get(order.get_absolute_url()).content.decode()
    assert "failed" in page
    assert "Voucher SUMMER-99 has expired" in page


def test_a_job_that_is_not_offered_is_not_found(client: Client, order: Order) -> None:
    assert client.post(reverse("shop:order_job", args=[order.pk]), {"job": "os.remove"}).status_code == 404


def test_a_report_waits_behind_everything_else(client: Client, order: Order) -> None:
    client.post(reverse("shop:report"))
    (report,) = testing.drain(queues=["reports"])
    assert report.return_value == "1 orders, 9.00 EUR"
    assert SalesReport.objects.get().best_seller == "Sencha"
    assert "best seller Sencha" in client.get(reverse("shop:orders")).content.decode()


# The order's page


def status(client: Client, order: Order) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(reverse("shop:order_status", args=[order.pk])).json()
    return answer


def test_the_page_polls_until_everything_has_ended(client: Client, order: Order) -> None:
    before = status(client, order)
    assert before["receipt"] is False
    assert before["wait_ms"] == 500
    testing.drain()
    after = status(client, order)
    assert after["receipt"] is True
    assert after["wait_ms"] is None
    assert "Receipt for order" in after["html"]


def test_a_job_without_history_is_left_out(client: Client, order: Order) -> None:
    order.jobs.create(label="Old job", result_id="987654321")
    assert "forgotten" in status(client, order)["html"]


def test_each_job_links_to_the_admin(admin_client: Client, order: Order) -> None:
    job = order.jobs.get(label="Send receipt")
    waiting_url = f"{reverse('admin:django_pgqueue_message_changelist')}?q={job.result_id}"
    history_url = f"{reverse('admin:django_pgqueue_attempt_changelist')}?q={job.result_id}"
    assert f'href="{waiting_url}"' in status(admin_client, order)["html"]
    testing.drain(queues=["mail"])
    assert f'href="{history_url}"' in status(admin_client, order)["html"]
    assert "send_receipt" in admin_client.get(history_url).content.decode()


def test_the_list_shows_what_has_been_done(client: Client, order: Order) -> None:
    assert "to send" in client.get(reverse("shop:orders")).content.decode()
    testing.drain(queues=["mail"])
    assert "to send" not in client.get(reverse("shop:orders")).content.decode()


# The warehouse


@pytest.fixture
def pick(client: Client, order: Order) -> Callable[[str], str]:
    call_command("qbind", verbosity=0)

    def press(outcome: str) -> str:
        return str(client.post(reverse("shop:warehouse"), {"outcome": outcome}, follow=True).content.decode())

    return press


def slip_attempts() -> list[str]:
    return list(Attempt.objects.filter(queue="warehouse").order_by("id").values_list("status", flat=True))


def test_the_warehouse_shows_what_waits_without_taking_it(client: Client, order: Order) -> None:
    page = client.get(reverse("shop:warehouse")).content.decode()
    assert f"Order {order.pk}" in page
    assert Message.objects.get(queue="warehouse").attempt == 0


def test_a_packed_slip_becomes_a_parcel(pick: Callable[[str], str], order: Order) -> None:
    assert f"Order {order.pk} is packed" in pick("pack")
    assert Parcel.objects.get().order == order
    assert slip_attempts() == ["succeeded"]
    assert "Nothing to pick" in pick("pack")


def test_a_parcel_is_announced_to_a_task_and_to_each_screen(pick: Callable[[str], str], order: Order) -> None:
    """Publish/subscribe: everybody who wants it gets a message of their own."""
    pick("pack")
    told = next(result for result in testing.drain() if result.task.name == "tell_customer")
    assert told.return_value == "notified ada@example.com (parcel.packed)"
    for name in SCREENS:
        out = io.StringIO()
        call_command("screen", name, "--lines", "1", stdout=out)
        assert out.getvalue() == f"parcel.packed: order {order.pk}\n"
    assert not Message.objects.exists()


def test_two_windows_of_a_screen_share_its_messages(order: Order) -> None:
    """A work queue: each message goes to one of them."""
    call_command("qbind", verbosity=0)
    for n in range(6):
        announce("parcel.lost", n)
    shown: list[str] = []
    for _ in range(2):
        show("door", shown.append, lines=3)
    assert shown == [f"parcel.lost: order {n}" for n in range(6)]
    assert Message.objects.filter(queue="screen-kitchen").count() == 6


def test_a_slip_that_was_put_back_is_picked_again(
    clock: testing.Clock, pick: Callable[[str], str], order: Order
) -> None:
    assert "comes back in 30 seconds" in pick("put_back")
    assert "Nothing to pick" in pick("pack")
    clock.advance(dt.timedelta(seconds=31))
    assert "is packed" in pick("pack")
    assert slip_attempts() == ["deferred", "succeeded"]


def test_damaged_goods_fail_their_slip(pick: Callable[[str], str]) -> None:
    assert "has failed" in pick("damaged")
    assert Attempt.objects.get(queue="warehouse").error_message == "The goods are damaged."
    assert not Parcel.objects.exists()


@pytest.mark.parametrize("content", [{"order": 0}, {}, [], "slip", None, 7])
def test_a_slip_that_names_no_order_fails_alone(client: Client, pick: Callable[[str], str], content: object) -> None:
    Message.objects.filter(queue="warehouse").delete()
    Queue("warehouse").send(content)
    assert client.get(reverse("shop:warehouse")).status_code == 200
    assert "names an order" in pick("pack")
    assert slip_attempts() == ["failed"]


# The rest


def test_the_shop_is_filled_once() -> None:
    call_command("fill_shop", stdout=io.StringIO())
    placed = Order.objects.count()
    assert placed == 10
    testing.drain(queues=["mail"])
    assert Receipt.objects.count() == placed
    call_command("fill_shop")
    assert Order.objects.count() == placed


def test_the_pages_show_the_code_that_runs(client: Client, order: Order) -> None:
    assert "send_receipt.enqueue(order.pk)" in client.get(reverse("shop:home")).content.decode()
    assert "context.attempt" in client.get(order.get_absolute_url()).content.decode()
    assert "QUEUE.receive()" in client.get(reverse("shop:warehouse")).content.decode()
