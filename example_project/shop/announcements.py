"""Announcements of the shop's events. The publisher does not know its listeners: see the bindings below.

The packers share the slips of one queue, "warehouse": a work queue. Each screen has a queue of its own, so every
screen shows everything: publish/subscribe. Tasks are subscribed in tasks.py.
"""

from collections.abc import Callable
from itertools import islice

from django_pgqueue.queue import Queue
from django_pgqueue.routing import Published, declare_binding, publish

EXCHANGE = "shop"
SCREENS = ("door", "kitchen")


def screen(name: str) -> Queue:
    return Queue(f"screen-{name}")


for name in SCREENS:
    declare_binding(EXCHANGE, "parcel.#", queue=screen(name).name)


def announce(what: str, order_pk: int) -> list[Published]:
    """Publish an event in its own transaction: listeners get it when the event is committed, and not before."""
    return publish(EXCHANGE, what, {"order": order_pk})


def show(name: str, write: Callable[[str], object], *, lines: int | None = None) -> None:
    """Show events as they come. A screen that was off then shows the events that it has missed."""
    with screen(name).listen() as messages:
        for message in islice(messages, lines):
            write(f"{(message.headers or {}).get('routing_key')}: order {message.content['order']}")
            message.ack()
