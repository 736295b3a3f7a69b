"""A durable order: it is billed, paid, released by a person, wrapped and handed to the courier, within days.

Whatever happens to the worker meanwhile, the steps that are done stay done. While the order waits for the customer's
payment or for the shop, it holds no slot, no lock and no connection.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.core.mail import send_mail

from django_pgqueue.models import Step
from django_pgqueue.tasks import task
from example_project.shop.models import CourierBooking, Order, OrderJob, OrderLine

if TYPE_CHECKING:
    from django_pgqueue.durable.context import DurableContext

PAY_WITHIN = timedelta(days=3)
RELEASE_FROM = Decimal(20)
"""An order of this value leaves the shop only after a person has looked at it."""
WORDS = {"bill": "Invoice mailed", "release": "Released by the shop", "book": "Handed to the courier"}


def paid(order_pk: int) -> str:
    """Return the name of the event that the bank's webhook emits."""
    return f"order-paid:{order_pk}"


@task(durable=True, max_attempts=10)
def fulfil(context: DurableContext, order_pk: int) -> str:
    order = Order.objects.get(pk=order_pk)
    context.step("bill", bill, order, context.key("bill"))
    if context.wait_for_event(paid(order_pk), timeout=PAY_WITHIN) is None:
        return "nobody has paid for it"
    if order.total >= RELEASE_FROM:
        show = {"order": order_pk, "customer": order.customer, "total": str(order.total)}
        released = context.approval("release", to="shop.change_order", show=show)
        if not released:
            return f"refused by {released.by}"
    tins = context.gather([wrap.enqueue_in(context, line.pk) for line in order.lines.all()])
    code = context.step("book", book, order, atomic=True)
    return f"{', '.join(tins)} travel as {code}"


def bill(order: Order, key: str) -> None:
    """Mail the invoice: at least once, and each time with the same number."""
    send_mail(f"Invoice {key[:8]}", f"Please pay € {order.total} for order {order.pk}.", None, [order.email])


@task
def wrap(line_pk: int) -> str:
    return str(OrderLine.objects.select_related("product").get(pk=line_pk))


def book(order: Order) -> str:
    """Book the courier: the row and the record of the step commit together, so exactly once."""
    booking, _ = CourierBooking.objects.get_or_create(
        order=order, defaults={"tracking_code": f"TEA-{order.pk:06}", "attempts": 1}
    )
    return booking.tracking_code


def how_far(order: Order) -> list[dict[str, Any]]:
    """Return the steps of the order's durable job, in the order in which they began, for its page."""
    job = OrderJob.objects.filter(order=order, label="Fulfil").last()
    if job is None:
        return []
    found: dict[str, dict[str, Any]] = {}
    for step in Step.objects.filter(message_id=int(job.result_id)).order_by("finished_at"):
        found[step.name] = {"words": words_of(step), "is_done": step.status == "done", "at": step.finished_at}
    return list(found.values())


def words_of(step: Step) -> str:
    if step.kind == "event":
        return "Paid"
    return "Given to a packer" if step.kind == "enqueue" else WORDS.get(step.name, step.name)
