"""The warehouse works with raw messages: content without a task, received when a person presses a button."""

from django.db import transaction

from django_pgqueue.models import Message
from django_pgqueue.queue import Queue, ReceivedMessage
from example_project.shop.announcements import announce
from example_project.shop.models import Order, Parcel

QUEUE = Queue("warehouse")
PUT_BACK_SECONDS = 30
SHOWN = 25


def pick_next(outcome: str) -> str:
    """Take the next picking slip and end it as asked; the parcel and the end of the slip commit together."""
    with transaction.atomic():
        slip = QUEUE.receive()
        if slip is None:
            return "Nothing to pick: no slip is ready."
        match outcome:
            case "put_back":
                return put_back(slip)
            case "damaged":
                return report_damaged(slip)
            case _:
                return pack(slip)


def pack(slip: ReceivedMessage) -> str:
    order = Order.objects.filter(pk=order_number(slip) or 0).first()
    if order is None:
        slip.fail("There is no such order.")
        return f"Message {slip.id} names an order that does not exist. It has failed and is in the history."
    Parcel.objects.get_or_create(order=order)
    announce("parcel.packed", order.pk)
    slip.complete(result={"packed": order.pk})
    return f"{order} is packed. Its slip, message {slip.id}, has moved to the history."


def put_back(slip: ReceivedMessage) -> str:
    slip.defer(seconds=PUT_BACK_SECONDS, state={"put_back": slip.attempt})
    return f"The slip of order {order_number(slip)} comes back in {PUT_BACK_SECONDS} seconds."


def report_damaged(slip: ReceivedMessage) -> str:
    slip.fail("The goods are damaged.")
    return f"The slip of order {order_number(slip)} has failed. The admin can enqueue it again."


def order_number(slip: ReceivedMessage) -> int | None:
    """The order's number; None where the content is no slip, because any client of the database may send messages."""
    number = slip.content.get("order") if isinstance(slip.content, dict) else None
    return number if isinstance(number, int) else None


def slips() -> list[Message]:
    """The slips that wait, without taking them."""
    return list(Message.objects.filter(queue=QUEUE.name, task=None).order_by("dequeue_at", "id")[:SHOWN])
