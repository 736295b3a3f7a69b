"""pg_mq's own words (its README and its procedures), each as something that a reader can tick off here.

Its exchanges, queues and patterns: ``tests/sql/exchange`` and ``tests/routing``.  Acknowledgements, and how many
messages a channel holds: ``tests/queue/test_listener.py``.  The article about it: ``test_pg_mq.py``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Message, Worker
from django_pgqueue.queue import Queue
from django_pgqueue.routing import Exchange, publish
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.queue.listener import Listener

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def exchange() -> Exchange:
    """``CALL mq.create_exchange(exchange_name => 'My Exchange')``"""
    found = Exchange("My Exchange")
    assert found.declare()
    return found


@pytest.fixture
def channels() -> Iterator[Any]:
    """``CALL mq.open_channel(queue_name => …, maximum_messages => 1)``; each is closed at the end."""
    with ExitStack() as opened:
        yield lambda queue: opened.enter_context(Queue(queue).listen(slots=1))


def contents(listener: Listener, number: int) -> list[Any]:
    found = []
    for _ in range(number):
        message = next(listener)
        found.append(message.content)
        message.ack()
    return found


class TestExchanges:
    def test_isolate_messaging_concerns_into_distinct_exchanges(self, exchange: Exchange) -> None:
        other = Exchange("Another Exchange")
        other.declare()
        exchange.bind("^.*$", queue="mine", regex=True)
        other.bind("^.*$", queue="others", regex=True)
        assert [each.queue for each in publish("My Exchange", "My Key", {})] == ["mine"]


class TestPublish:
    def test_messages_have_a_routing_key_a_body_and_headers(self, exchange: Exchange, channels: Any) -> None:
        """There the headers are taken and never stored."""
        exchange.bind("#", queue="My Queue")
        channel = channels("My Queue")
        publish("My Exchange", "My Key", {"hello": "world"}, headers={"foo": "bar"})
        message = next(channel)
        assert message.content == {"hello": "world"}
        assert message.headers == {"foo": "bar", "exchange": "My Exchange", "routing_key": "My Key"}


class TestWorkQueue:
    def test_messages_are_delivered_to_a_single_listening_consumer_per_queue(
        self, exchange: Exchange, channels: Any
    ) -> None:
        exchange.bind("#", queue="My Queue")
        one, two = channels("My Queue"), channels("My Queue")
        publish("My Exchange", "k", 1)
        first = next(one)
        publish("My Exchange", "k", 2)
        second = next(two)
        assert (first.content, second.content) == (1, 2)
        assert Message.objects.count() == 2


class TestPublishSubscribe:
    def test_a_queue_for_each_consumer_gives_everything_to_each(self, exchange: Exchange, channels: Any) -> None:
        for name in ("a", "b", "c"):
            exchange.bind("#", queue=name)
        listening = [channels(name) for name in ("a", "b", "c")]
        for n in range(3):
            publish("My Exchange", "k", n)
        assert [contents(each, 3) for each in listening] == [[0, 1, 2]] * 3


class TestChannels:
    def test_a_channel_on_a_queue_that_is_bound_later_waits(self, exchange: Exchange, channels: Any) -> None:
        """There it is a warning, and no channel: a consumer that starts too early never hears anything."""
        channel = channels("My Queue")
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        assert next(channel).content == 1

    def test_a_sweep_while_no_consumer_has_room_loses_no_message(self, exchange: Exchange, channels: Any) -> None:
        """There the sweep takes the message out of what waits before it looks for a consumer."""
        exchange.bind("#", queue="My Queue")
        channel = channels("My Queue")
        publish("My Exchange", "k", 1)
        held = next(channel)
        publish("My Exchange", "k", 2)
        wait_until(Worker.objects.exists, "it listens, and has no room")
        held.ack()
        assert next(channel).content == 2
