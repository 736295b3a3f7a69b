"""pg_mq's own words (its README and its procedures), each as something that a reader can tick off here.

``tests/promises/seeds/test_pg_mq.py`` does the same for the article about it.
"""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_pgqueue.exceptions import AttemptLost, InvalidPattern, UnknownExchange
from django_pgqueue.models import Attempt, Message, Worker
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
    """``CALL mq.open_channel(queue_name => …, maximum_messages => …)``; each is closed at the end."""
    with ExitStack() as opened:
        yield lambda queue, maximum_messages=1: opened.enter_context(Queue(queue).listen(slots=maximum_messages))


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

    def test_publishing_to_an_exchange_that_is_not_there_is_told(self) -> None:
        """There it is a warning, and the message is gone."""
        with pytest.raises(UnknownExchange):
            publish("My Exchange", "My Key", {})

    def test_delete_exchange_takes_its_bindings_along(self, exchange: Exchange) -> None:
        """There it fails while a queue refers to it."""
        exchange.bind("#", queue="q")
        assert exchange.delete()
        assert not exchange.delete()


class TestQueues:
    def test_declare_queues_that_select_messages_based_on_routing_patterns(self, exchange: Exchange) -> None:
        exchange.bind("^My Key$", queue="My Queue", regex=True)
        assert len(publish("My Exchange", "My Key", {"hello": "world"})) == 1
        assert publish("My Exchange", "My Key, and more", {}) == []

    def test_a_pattern_may_match_anywhere_as_the_operator_does(self, exchange: Exchange) -> None:
        exchange.bind("Key", queue="My Queue", regex=True)
        assert len(publish("My Exchange", "My Key, and more", {})) == 1

    def test_a_pattern_that_is_none_is_told_when_the_queue_is_made(self, exchange: Exchange) -> None:
        """There the next publish fails, and with it every publish to the exchange."""
        with pytest.raises(InvalidPattern, match=r"\(My Key"):
            exchange.bind("(My Key", queue="My Queue", regex=True)

    def test_delete_queue_stops_what_comes(self, exchange: Exchange) -> None:
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "My Key", 1)
        exchange.unbind("#", queue="My Queue")
        assert publish("My Exchange", "My Key", 2) == []
        # There the messages go with the queue; here they stay until somebody takes or cancels them.
        assert [message.content for message in Queue("My Queue").receive_many(9)] == [1]


class TestPublish:
    def test_messages_have_a_routing_key_a_body_and_headers(self, exchange: Exchange, channels: Any) -> None:
        """There the headers are taken and never stored."""
        exchange.bind("#", queue="My Queue")
        channel = channels("My Queue")
        publish("My Exchange", "My Key", {"hello": "world"}, headers={"foo": "bar"})
        message = next(channel)
        assert message.content == {"hello": "world"}
        assert message.headers == {"foo": "bar", "exchange": "My Exchange", "routing_key": "My Key"}

    def test_it_is_part_of_the_transaction(self, exchange: Exchange) -> None:
        exchange.bind("#", queue="My Queue")
        with transaction.atomic():
            publish("My Exchange", "My Key", {})
            transaction.set_rollback(True)
        assert Queue("My Queue").receive() is None


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

    def test_a_sole_consumer_receives_all(self, exchange: Exchange, channels: Any) -> None:
        exchange.bind("#", queue="My Queue")
        for n in range(5):
            publish("My Exchange", "k", n)
        assert contents(channels("My Queue"), 5) == [0, 1, 2, 3, 4]


class TestPublishSubscribe:
    def test_a_queue_for_each_consumer_gives_everything_to_each(self, exchange: Exchange, channels: Any) -> None:
        for name in ("a", "b", "c"):
            exchange.bind("#", queue=name)
        listening = [channels(name) for name in ("a", "b", "c")]
        for n in range(3):
            publish("My Exchange", "k", n)
        assert [contents(each, 3) for each in listening] == [[0, 1, 2]] * 3


class TestRateLimiting:
    def test_consumers_define_how_many_messages_they_handle_simultaneously(
        self, exchange: Exchange, channels: Any
    ) -> None:
        exchange.bind("#", queue="My Queue")
        for n in range(5):
            publish("My Exchange", "k", n)
        channel = channels("My Queue", maximum_messages=3)
        held = [next(channel) for _ in range(3)]
        assert Message.objects.exclude(worker=None).count() == 3
        held[1].ack()
        assert next(channel).content == 3
        assert Message.objects.exclude(worker=None).count() == 3


class TestAcknowledge:
    def test_an_acknowledged_message_is_removed(self, exchange: Exchange, channels: Any) -> None:
        """And it stands in the history, which is not there."""
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        next(channels("My Queue")).ack()
        assert not Message.objects.exists()
        assert Attempt.objects.get().status == "succeeded"

    def test_a_negative_acknowledgement_puts_it_back(self, exchange: Exchange, channels: Any) -> None:
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        channel = channels("My Queue")
        next(channel).nack()
        assert next(channel).attempt == 2

    def test_retry_after_comes_without_a_sweep(self, exchange: Exchange, channels: Any) -> None:
        """There nothing flows without outside input: ``CALL mq.sweep_waiting_message(…)`` by cron."""
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        channel = channels("My Queue")
        first = next(channel)
        first.nack(0.3)
        again = next(channel)
        assert again.id == first.id
        assert again.received.locked_at - first.received.locked_at >= dt.timedelta(seconds=0.3)

    def test_a_delivery_that_is_over_can_not_be_acknowledged(self, exchange: Exchange, channels: Any) -> None:
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        channel = channels("My Queue")
        message = next(channel)
        message.nack(3600)
        with pytest.raises(AttemptLost):
            message.ack()
        assert Message.objects.count() == 1


class TestChannels:
    def test_close_channel_puts_its_messages_back(self, exchange: Exchange, channels: Any) -> None:
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        channel = channels("My Queue")
        next(channel)
        channel.close()
        assert next(channels("My Queue")).attempt == 1

    def test_a_channel_on_a_queue_that_is_bound_later_waits(self, exchange: Exchange, channels: Any) -> None:
        """There it is a warning, and no channel: a consumer that starts too early never hears anything."""
        channel = channels("My Queue")
        exchange.bind("#", queue="My Queue")
        publish("My Exchange", "k", 1)
        assert next(channel).content == 1

    def test_looking_for_what_waits_while_nobody_has_room_loses_nothing(
        self, exchange: Exchange, channels: Any
    ) -> None:
        """There the sweep takes the message out of what waits before it looks for a consumer."""
        exchange.bind("#", queue="My Queue")
        channel = channels("My Queue")
        publish("My Exchange", "k", 1)
        held = next(channel)
        publish("My Exchange", "k", 2)
        wait_until(Worker.objects.exists, "it listens, and has no room")
        held.ack()
        assert next(channel).content == 2
