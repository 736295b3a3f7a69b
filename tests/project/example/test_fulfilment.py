"""The shop's durable order, from its button to the courier, as the customer, the bank and the shop see it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.urls import reverse

from django_pgqueue import testing
from django_pgqueue.durable import decide
from django_pgqueue.models import Message
from example_project.shop import bank
from example_project.shop.checkout import place_order
from example_project.shop.models import CourierBooking, Order, Product

if TYPE_CHECKING:
    from django.test import Client

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]
FULFIL = "example_project.shop.fulfilment.fulfil"


@pytest.fixture
def order() -> Order:
    tea = Product.objects.create(
        name="Sencha", slug="sencha", description="Green.", price=Decimal(15), colour="#234567"
    )
    return place_order("Ada", "ada@example.com", {tea: 2})


def ask(client: Client, order: Order) -> None:
    client.post(reverse("shop:order_job", args=[order.pk]), {"job": "fulfil"})


def job_of(order: Order) -> int:
    return int(order.jobs.get(label="Fulfil").result_id)


def page(client: Client, order: Order) -> str:
    """The page of the order, after the worker has done what it can."""
    testing.drain()
    return client.get(order.get_absolute_url()).content.decode()


def test_a_durable_order_waits_for_the_bank_the_shop_and_the_packers(client: Client, order: Order) -> None:
    ask(client, order)
    shown = page(client, order)
    assert "waits for the payment" in shown
    assert "Invoice mailed" in shown
    assert Message.objects.get(task=FULFIL).unlock_at is None

    webhook = reverse("shop:payment")
    body, signature = bank.notification(order)
    unknown = json.dumps({"order": 0, "charge": "ch_0"}).encode()
    answers = [
        client.post(webhook, payload, "application/json", headers={"X-Signature": signed})
        for payload, signed in [
            (body, "wrong"), (body, "wröng"), (unknown, bank.signature(unknown)), (body, signature), (body, signature),
        ]
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [403, 403, 404, 200, 200]
    assert [answer.json()["new"] for answer in answers[3:]] == [True, False]

    shown = page(client, order)
    assert "see Approvals in the admin" in shown
    assert not CourierBooking.objects.exists()
    boss = User.objects.create_superuser("boss")
    assert decide(job_of(order), "release", approved=True, user=boss) == "decided"

    shown = page(client, order)
    code = CourierBooking.objects.get().tracking_code
    assert f"2 x Sencha travel as {code}" in shown
    words = ["Invoice mailed", "Paid", "Released by the shop", "Given to a packer", "Handed to the courier"]
    places = [shown.index(f'<th scope="row">{word}') for word in words]
    assert places == sorted(places)
    assert [sent.subject[:7] for sent in mail.outbox].count("Invoice") == 1


def test_an_order_that_nobody_pays_ends_after_three_days(client: Client, order: Order) -> None:
    ask(client, order)
    with testing.clock() as now:
        testing.drain(clock=now)
    assert "nobody has paid for it" in page(client, order)


def test_a_refused_order_says_who_refused_it(client: Client, order: Order) -> None:
    ask(client, order)
    client.post(reverse("shop:pay", args=[order.pk]))
    page(client, order)
    decide(job_of(order), "release", approved=False, user=User.objects.create_superuser("boss"))
    assert "refused by boss" in page(client, order)
    assert not CourierBooking.objects.exists()
