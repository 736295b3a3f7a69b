"""Checkout: an order and its jobs in one transaction, which this whole project is about."""

from collections.abc import Mapping

from django.db import transaction

from django_pgqueue.compat import AnyTaskResult
from django_pgqueue.queue import Queue
from example_project.shop.models import Order, OrderJob, OrderLine, Product
from example_project.shop.tasks import send_receipt


class ChangedMind(Exception):
    """The customer changed their mind after everything was done, but before it was committed."""

    def __init__(self, order_pk: int, job_id: str) -> None:
        super().__init__(self.__doc__)
        self.order_pk = order_pk
        self.job_id = job_id


def place_order(customer: str, email: str, basket: Mapping[Product, int], *, change_mind: bool = False) -> Order:
    with transaction.atomic():
        total = sum(product.price * quantity for product, quantity in basket.items())
        order = Order.objects.create(customer=customer, email=email, total=total)
        for product, quantity in basket.items():
            OrderLine.objects.create(order=order, product=product, quantity=quantity, unit_price=product.price)

        # No on_commit: a job is a row of the same transaction. It exists when the order does, and not before.
        receipt = send_receipt.enqueue(order.pk)
        Queue("warehouse").send(picking_slip(order))

        remember(order, receipt)
        if change_mind:
            raise ChangedMind(order.pk, receipt.id)
    return order


def picking_slip(order: Order) -> dict[str, object]:
    lines = [
        {"product": line.product.name, "quantity": line.quantity} for line in order.lines.select_related("product")
    ]
    return {"order": order.pk, "customer": order.customer, "lines": lines}


def remember(order: Order, job: AnyTaskResult) -> OrderJob:
    """Note the id of a job's result, so that the order's page can show its state."""
    return OrderJob.objects.create(order=order, label=job.task.name.replace("_", " ").capitalize(), result_id=job.id)
