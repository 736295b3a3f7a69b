"""The bank's side of a payment, and the shop's ear for it."""

import hashlib
import hmac
import json

from django.conf import settings
from django.db import transaction

from django_pgqueue.durable import emit
from example_project.shop.fulfilment import paid
from example_project.shop.models import Order


class Forged(Exception):
    """The signature is not the bank's."""


def notification(order: Order) -> tuple[bytes, str]:
    """Play the bank: what it sends when the customer has paid, and the signature of that."""
    body = json.dumps({"order": order.pk, "charge": f"ch_{order.pk}"}).encode()
    return body, signature(body)


def signature(body: bytes) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), body, hashlib.sha256).hexdigest()


def receive(body: bytes, signed: str) -> bool:
    """Emit the event of a payment. A bank that repeats itself changes nothing: then it is False."""
    if not hmac.compare_digest(signature(body).encode(), signed.encode()):
        raise Forged
    payment = json.loads(body)
    with transaction.atomic():
        order = Order.objects.get(pk=payment["order"])
        return emit(paid(order.pk), {"charge": payment["charge"]})
