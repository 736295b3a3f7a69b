"""Publish to an exchange, and let bindings say which queues and tasks get the message.

>>> publish("orders", "order.created", {"order": 7})  # doctest: +SKIP
[Published(id=12, queue='default', task='shop.tasks.audit')]
"""

from django_pgqueue.functions import Published, Route
from django_pgqueue.routing.declared import declare_binding, declare_exchange, subscribe
from django_pgqueue.routing.exchange import Exchange, apublish, publish

__all__ = [
    "Exchange",
    "Published",
    "Route",
    "apublish",
    "declare_binding",
    "declare_exchange",
    "publish",
    "subscribe",
]
