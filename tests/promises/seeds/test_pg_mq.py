"""The article on pg_mq: messages are pushed to idle consumers by LISTEN/NOTIFY, and an ack gives the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.queue import Queue
from tests.promises.seeds.faces import SqlQueue
from tests.support.sessions import NOON, Listener, eventually

if TYPE_CHECKING:
    from tests.promises.seeds.conftest import Clock, Face
    from tests.promises.seeds.faces import SqlMessage
    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = 60_000


class Consumer:
    """The article's console program: it listens, gets a message pushed, works, acknowledges it and gets the next."""

    def __init__(self, connect: Connect, name: str, queue: str = "mail") -> None:
        self.name = name
        self.queue = SqlQueue(connect(), queue)
        self.session = self.queue.session
        self.listener = Listener(connect(), f"pgqueue_{name}")
        self.holds: SqlMessage | None = None

    def wait(self) -> Consumer:
        """Registers as idle, and looks once more: what came before that has notified nobody."""
        self._seen(asleep_ms=MINUTE)
        self._next()
        return self

    def notified(self) -> list[str]:
        """The payloads of the notifications that have come, after which it takes what there is."""
        payloads = [payload for _, payload in self.listener.heard(self.session)]
        if payloads and self.holds is None:
            self._next()
        return payloads

    def pushed(self) -> Any:
        """The content that a notification brings."""
        eventually(self.notified)
        assert self.holds is not None
        return self.holds.content

    def ack(self) -> Any:
        """Throws away the message that is done and answers the content of the next one, or None."""
        assert self.holds is not None
        self.holds.complete()
        return self._next()

    def _next(self) -> Any:
        self.holds = self.queue.receive()
        self._seen(asleep_ms=MINUTE if self.holds is None else None)
        return None if self.holds is None else self.holds.content

    def _seen(self, *, asleep_ms: int | None) -> None:
        self.session.call(
            "pgqueue_worker_seen",
            id=self.name,
            queues=[self.queue.name],
            exclude_queues=[],
            hostname="host",
            pid=self.session.pid,
            slots=1,
            asleep_ms=asleep_ms,
            tasks=False,
        )


def test_the_notification_names_the_queue_and_the_content_is_fetched_so_it_may_be_of_any_size(
    queue: Face, connect: Connect
) -> None:
    """The article sends the body as the payload, which PostgreSQL limits to 8 000 bytes."""
    consumer = Consumer(connect, "consumer_1").wait()
    queue.send("x" * 20_000)
    assert eventually(consumer.notified) == ["mail"]
    assert consumer.holds is not None
    assert consumer.holds.content == "x" * 20_000


def test_an_ack_gives_the_next_message_until_there_is_none(queue: Face, connect: Connect) -> None:
    consumer = Consumer(connect, "consumer_1").wait()
    queue.send_many([1, 2, 3])
    assert consumer.pushed() == 1
    assert [consumer.ack(), consumer.ack(), consumer.ack()] == [2, 3, None]
    assert consumer.session.messages() == []


def test_a_message_published_without_a_listener_is_delivered_later(queue: Face, connect: Connect) -> None:
    """The article's consumer misses it: it only gets what is inserted after it has registered."""
    queue.send_many([1, 2])
    consumer = Consumer(connect, "consumer_1").wait()
    assert consumer.holds is not None
    assert consumer.holds.content == 1
    assert [consumer.ack(), consumer.ack()] == [2, None]


def test_a_consumer_that_holds_a_message_is_not_pushed_another(queue: Face, connect: Connect) -> None:
    consumer = Consumer(connect, "consumer_1").wait()
    queue.send(1)
    assert consumer.pushed() == 1
    queue.send(2)
    assert consumer.notified() == []
    assert consumer.ack() == 2


def test_a_message_goes_to_one_consumer_and_not_to_all_that_listen(queue: Face, connect: Connect) -> None:
    consumers = [Consumer(connect, f"consumer_{n}").wait() for n in range(3)]
    queue.send("once")
    notified = [consumer.notified() for consumer in consumers]
    assert sorted(notified) == [[], [], ["mail"]]
    assert [consumer.holds.content for consumer in consumers if consumer.holds is not None] == ["once"]


def test_a_message_for_one_queue_never_reaches_a_consumer_of_another(queue: Face, connect: Connect) -> None:
    """pg_mq compares a column with a parameter of the same name, which is always true."""
    of_maps, of_mail = Consumer(connect, "consumer_maps", "maps").wait(), Consumer(connect, "consumer_mail").wait()
    queue.send("for mail")
    assert of_maps.notified() == []
    assert of_maps.queue.receive() is None
    assert of_mail.pushed() == "for mail"
    Queue("maps").send("for maps")
    assert of_maps.pushed() == "for maps"
    assert (of_mail.ack(), of_maps.ack()) == (None, None)


def test_the_push_comes_with_the_commit_and_a_rollback_pushes_nothing(connect: Connect) -> None:
    consumer, producer = Consumer(connect, "consumer_1").wait(), connect(autocommit=False)
    producer.create("not to be", queue="mail")
    producer.rollback()
    producer.create("to be", queue="mail")
    assert consumer.notified() == []
    producer.commit()
    assert consumer.pushed() == "to be"


def test_two_producers_at_once_neither_deadlock_nor_wait_nor_deliver_twice(connect: Connect) -> None:
    """In the article they race for the row of the idle consumer.  Here that row is read and never locked."""
    consumers = [Consumer(connect, f"consumer_{n}").wait() for n in range(2)]
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
            if consumer.holds is not None:
                delivered.append(consumer.holds.content)
                consumer.ack()
    assert sorted(delivered) == ["of the first", "of the second"]


def test_a_delayed_message_arrives_without_another_event(queue: Face, another: SqlQueue, clock: Clock) -> None:
    """pg_mq holds it until the next insert or ack.  Here a consumer knows how long it may sleep."""
    clock(NOON)
    queue.send("delayed", dequeue_at=NOON + 1500)
    assert another.receive() is None
    assert another.session.value("pgqueue_message_next_at", queues=["mail"]) == NOON + 1500
    clock(NOON + 1500)
    message = another.receive()
    assert message is not None
    assert message.content == "delayed"
