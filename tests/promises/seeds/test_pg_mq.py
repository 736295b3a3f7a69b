"""The article on pg_mq: messages are pushed to idle consumers by LISTEN/NOTIFY, here with the SQL functions alone.

What else the articles of LonnyMQ, BlaboSoft and pg_mq promise is tested where it is: ``tests/sql``, ``tests/queue`` and
``tests/routing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.fixtures.sessions import connect, sessions, test_database
from tests.support.sessions import Listener, eventually, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect

__all__ = ["connect", "sessions", "test_database"]

MINUTE = 60_000


class Consumer:
    """The article's console program: it listens, gets a message pushed, works, acknowledges it and gets the next."""

    def __init__(self, connect: Connect, name: str = "consumer", queue: str = "mail") -> None:
        self.name, self.queue = name, queue
        self.session = connect()
        self.listener = Listener(connect(), f"pgqueue_{name}")
        # It looks once more: what came before it was registered has notified nobody.
        self._seen(asleep_ms=MINUTE)
        self.held = self._next()

    def notified(self) -> list[str]:
        """The payloads of the notifications that have come, after which it takes what there is."""
        payloads = [payload for _, payload in self.listener.heard(self.session)]
        if payloads and self.held is None:
            self.held = self._next()
        return payloads

    def pushed(self) -> Any:
        """The content that a notification brings."""
        eventually(self.notified)
        assert self.held is not None
        return self.held.content

    def ack(self) -> Any:
        """Completes the message that it holds and answers the content of the next one, or None."""
        assert self.session.value("pgqueue_message_complete", **token(self.held)) is True
        self.held = self._next()
        return None if self.held is None else self.held.content

    def _next(self) -> Any:
        [held] = self.session.dequeue(queues=[self.queue]) or [None]
        self._seen(asleep_ms=MINUTE if held is None else None)
        return held

    def _seen(self, *, asleep_ms: int | None) -> None:
        self.session.call(
            "pgqueue_worker_seen",
            id=self.name,
            queues=[self.queue],
            exclude_queues=[],
            hostname="host",
            pid=self.session.pid,
            slots=1,
            asleep_ms=asleep_ms,
            tasks=False,
        )


def test_content_larger_than_a_notification_is_pushed(connect: Connect) -> None:
    """The article sends the content as the payload, which PostgreSQL limits to 8,000 bytes."""
    consumer = Consumer(connect)
    connect().create("x" * 20_000, queue="mail")
    assert eventually(consumer.notified) == ["mail"]
    assert consumer.held.content == "x" * 20_000


def test_a_message_published_without_a_listener_is_delivered_later(connect: Connect) -> None:
    """The article's consumer misses it: it only gets what is inserted after it has registered."""
    connect().create_batch(2, queue="mail")
    consumer = Consumer(connect)
    assert consumer.held.content == 0
    assert [consumer.ack(), consumer.ack()] == [1, None]


def test_a_consumer_that_holds_a_message_is_not_pushed_another(connect: Connect) -> None:
    consumer, producer = Consumer(connect), connect()
    producer.create(1, queue="mail")
    assert consumer.pushed() == 1
    producer.create(2, queue="mail")
    assert consumer.notified() == []
    assert consumer.ack() == 2


def test_a_message_is_pushed_to_one_of_the_consumers_of_its_queue(connect: Connect) -> None:
    """pg_mq compares a column with a parameter of the same name: consumers of all queues get it."""
    of_mail = [Consumer(connect, f"consumer_{n}") for n in range(3)]
    of_maps = Consumer(connect, "consumer_maps", "maps")
    connect().create("once", queue="mail")
    assert sorted(consumer.notified() for consumer in of_mail) == [[], [], ["mail"]]
    assert [consumer.held.content for consumer in of_mail if consumer.held] == ["once"]
    assert (of_maps.notified(), of_maps.session.dequeue(queues=["maps"])) == ([], [])


def test_the_push_comes_with_the_commit_and_a_rollback_pushes_nothing(connect: Connect) -> None:
    consumer, producer = Consumer(connect), connect(autocommit=False)
    producer.create("not to be", queue="mail")
    producer.rollback()
    producer.create("to be", queue="mail")
    assert consumer.notified() == []
    producer.commit()
    assert consumer.pushed() == "to be"


def test_two_producers_at_once_neither_wait_nor_deliver_twice(connect: Connect) -> None:
    """In the article they race for the row of the idle consumer.  Here that row is read and never locked."""
    consumers = [Consumer(connect, f"consumer_{n}") for n in range(2)]
    first, second = connect(autocommit=False), connect(autocommit=False)
    for producer in (first, second):
        producer.rows("set lock_timeout = '1s'")
    first.create("of the first", queue="mail")
    second.create("of the second", queue="mail")
    second.commit()
    first.commit()

    delivered: list[Any] = []
    while len(delivered) < 2:
        for consumer in consumers:
            consumer.notified()
            if consumer.held is not None:
                delivered.append(consumer.held.content)
                consumer.ack()
    assert sorted(delivered) == ["of the first", "of the second"]
