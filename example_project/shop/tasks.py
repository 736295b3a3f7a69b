"""The shop's background jobs, one of each kind: plain, retried, doomed, scheduled, async, low."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Sum
from django.template.loader import render_to_string

from django_pgqueue.routing import subscribe
from django_pgqueue.tasks import task
from example_project.shop.announcements import EXCHANGE
from example_project.shop.models import CourierBooking, Order, OrderLine, Quote, Receipt, SalesReport

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext, TaskResult

REMIND_AFTER = timedelta(minutes=1)
RATES = {"GBP": Decimal("0.84"), "JPY": Decimal("161.50"), "USD": Decimal("1.09")}


class CourierBusy(Exception):
    """The courier's line is busy."""


class VoucherExpired(Exception):
    """The voucher has expired, and no second try will change that."""


@task(queue_name="mail", priority=10, max_attempts=5)
def send_receipt(order_pk: int) -> str:
    """Mail the receipt and keep a copy of it.

    The row is committed after the mail has left. If the worker dies between the two, the mail goes out twice: rather
    that than never.
    """
    order = Order.objects.get(pk=order_pk)
    with transaction.atomic():
        text = render_to_string("shop/receipt.txt", {"order": order})
        _, new = Receipt.objects.get_or_create(order=order, defaults={"text": text})
        if new:
            send_mail(f"Your receipt for order {order.pk}", text, None, [order.email])
    return f"sent to {order.email}" if new else "was sent before"


def call_again_soon(exception: BaseException, task_result: TaskResult[Any, Any]) -> float | None:
    """Seconds until the next attempt, or None to give up. The default, exponential with jitter, is long to watch."""
    return 1.0 + task_result.attempts if isinstance(exception, CourierBusy) else None


@task(takes_context=True, max_attempts=5, backoff=call_again_soon)
def book_courier(context: TaskContext[Any, Any], order_pk: int) -> str:
    """Call the courier, who answers at the third ring: the first two attempts fail and are retried."""
    if context.attempt < 3:
        problem = f"The courier's line is busy (call {context.attempt})."
        raise CourierBusy(problem)
    booking, _ = CourierBooking.objects.get_or_create(
        order_id=order_pk, defaults={"tracking_code": f"TEA-{order_pk:06}", "attempts": context.attempt}
    )
    return f"booked as {booking.tracking_code}"


@task
def redeem_voucher(order_pk: int, code: str) -> None:
    """Fail for good: without max_attempts an exception is final, as in Django itself."""
    problem = f"Voucher {code} has expired, so order {order_pk} keeps its price."
    raise VoucherExpired(problem)


@task(queue_name="mail")
def send_reminder(order_pk: int) -> str:
    order = Order.objects.get(pk=order_pk)
    send_mail("Time for tea", f"Dear {order.customer}, have you brewed your order {order.pk} yet?", None, [order.email])
    return f"sent to {order.email}"


@task
async def quote_currencies(order_pk: int) -> dict[str, str]:
    """Ask all banks at once: an async job waits without holding a thread."""
    order = await Order.objects.aget(pk=order_pk)
    rates = await asyncio.gather(*(ask_bank(currency) for currency in RATES))
    amounts = {currency: round(order.total * rate, 2) for currency, rate in zip(RATES, rates, strict=True)}
    for currency, amount in amounts.items():
        await Quote.objects.aupdate_or_create(order=order, currency=currency, defaults={"amount": amount})
    return {currency: str(amount) for currency, amount in amounts.items()}


async def ask_bank(currency: str) -> Decimal:
    """Stand in for a bank's web service: the waiting is real, the rates are not."""
    await asyncio.sleep(0.5)
    return RATES[currency]


@task(queue_name="reports", priority=-10)
def make_sales_report() -> str:
    """Sum up the shop, after everything that is more urgent."""
    sums = Order.objects.aggregate(revenue=Sum("total"))
    best = OrderLine.objects.values("product__name").annotate(sold=Sum("quantity")).order_by("-sold").first()
    report = SalesReport.objects.create(
        orders=Order.objects.count(), revenue=sums["revenue"] or 0, best_seller=best["product__name"] if best else ""
    )
    return str(report)


@subscribe(EXCHANGE, "parcel.packed")
@task(queue_name="mail")
def tell_customer(news: dict[str, int], routing_key: str) -> str:
    """Mail the customer about every parcel, whatever published the announcement."""
    order = Order.objects.get(pk=news["order"])
    send_mail(
        "Your tea is packed", f"Dear {order.customer}, order {order.pk} waits for the courier.", None, [order.email]
    )
    return f"notified {order.email} ({routing_key})"
