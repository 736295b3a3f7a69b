"""Channels under real concurrency: nobody waits for anybody, and limits are never exceeded."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sql.words import contents, drifted, set_channel
from tests.support.sessions import concurrently, eventually, token, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

SEED = 20_240_501


def test_enqueues_into_one_channel_do_not_wait_for_each_other(connect: Connect) -> None:
    """Neither of the first two commits; the third's message is dequeued meanwhile."""
    set_channel(connect(), max_concurrency=1, max_size=100, release_interval_ms=1)
    first, second, third, consumer = connect(autocommit=False), connect(autocommit=False), connect(), connect()
    for session in (first, second, third, consumer):
        session.rows("set lock_timeout = '1s'")
    first.create("first", channel="acme")
    second.create("second", channel="acme")
    third.create("third", channel="acme")
    held = consumer.take()
    assert held.content == "third"
    first.create("first again", channel="acme")
    consumer.call("pgqueue_message_complete", **token(held))
    second.commit()
    first.commit()
    left: list[str] = []

    def drained() -> bool:
        for message in consumer.dequeue(10):
            left.append(message.content)
            consumer.call("pgqueue_message_complete", **token(message))
        return len(left) == 3

    eventually(drained)
    assert sorted(left) == ["first", "first again", "second"]


def test_a_dequeue_does_not_wait_for_a_channel_that_was_set_without_its_lock(connect: Connect) -> None:
    """Who sets a channel waits a second for the lock of its name, and then inserts its row without that lock."""
    stranger, setter, consumer = connect(autocommit=False), connect(autocommit=False), connect()
    stranger.call("pgqueue_advisory_lock", what="channel acme")
    setter.call("pgqueue_channel_set", name="acme", max_concurrency=1)
    stranger.commit()
    consumer.create("first", channel="acme")
    consumer.create("other", channel="other")
    consumer.rows("set lock_timeout = '1s'")
    taken: list[str] = []

    def took(content: str) -> bool:
        for message in consumer.dequeue(10):
            taken.append(message.content)
            consumer.call("pgqueue_message_complete", **token(message))
        return content in taken

    eventually(lambda: took("other"))
    assert taken == ["other"]
    assert consumer.one("show lock_timeout") == "1s"
    setter.commit()
    eventually(lambda: took("first"))


def test_a_lane_that_is_made_while_its_channel_is_removed_gives_its_messages(connect: Connect) -> None:
    """The dequeue that makes the lane still sees the channel, which an open transaction has deleted."""
    remover, session = connect(autocommit=False), connect()
    session.create(channel="acme", queue="mail")
    session.value("pgqueue_message_complete", **token(session.take()))
    session.dequeue()
    assert remover.value("pgqueue_channel_prune") == 1
    session.create("later", channel="acme", queue="bulk")
    assert session.dequeue() == []
    remover.commit()
    assert contents(session.dequeue()) == ["later"]


def test_an_uncommitted_end_blocks_neither_dequeues_nor_other_ends(connect: Connect) -> None:
    """So an atomic task, which ends in its own transaction, holds up nobody of its tenant."""
    set_channel(connect(), max_concurrency=3)
    slow, other = connect(autocommit=False), connect()
    other.rows("set lock_timeout = '1s'")
    other.create_batch(5, channel="acme")
    held = other.dequeue(3)
    slow.call("pgqueue_message_complete", **token(held[0]))
    other.call("pgqueue_message_complete", **token(held[1]))
    assert contents(other.dequeue(10)) == [3], "the place that is not given back for certain is not used"
    slow.rollback()
    other.call("pgqueue_message_complete", **token(held[0]))
    assert contents(other.dequeue(10)) == [4]
    assert drifted(other) == []


def test_ends_of_several_channels_in_opposite_orders_do_not_deadlock(connect: Connect) -> None:
    one, other, session = connect(autocommit=False), connect(autocommit=False), connect()
    for n in range(2):
        session.create(n, channel="a")
        session.create(n, channel="b")
    held = {(message.channel, message.content): message for message in session.dequeue(10)}
    for channel, consumer in (("a", one), ("b", other)):
        consumer.call("pgqueue_message_complete", **token(held[channel, 0]))
    for channel, consumer in (("b", one), ("a", other)):
        consumer.call("pgqueue_message_complete", **token(held[channel, 1]))
    one.commit()
    other.commit()
    session.dequeue()
    assert drifted(session) == []


class Watch:
    """Samples from the database how many of each channel are locked."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.most: Counter[str] = Counter()
        self.samples = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            for name, running in self.session.rows("""
                select channel, count(*) from pgqueue_message
                where unlock_at is not null and channel is not null group by 1
            """):
                self.most[name] = max(self.most[name], running)
            self.samples += 1
            time.sleep(0.001)


LIMITS = {"one": 1, "two": 2, "five": 5}


ENDS: list[Callable[[Session, Any], object]] = [
    lambda session, held: session.call("pgqueue_message_defer", **token(held), state={"seen": 1}),
    lambda session, held: session.call("pgqueue_message_defer", **token(held), error={"message": "no"}),
    lambda session, held: session.call("pgqueue_message_fail", **token(held)),
    lambda session, held: session.call("pgqueue_message_cancel", **token(held)),
    lambda session, held: session.call("pgqueue_message_release", **tokens([held])),
    lambda session, held: session.call("pgqueue_message_abandon", **tokens([held])),
    lambda session, held: session.rows("delete from pgqueue_message where id = %s", [held.id]),
    # It died, or takes long: others may take it over.
    lambda session, held: session.call("pgqueue_message_heartbeat", **token(held), lock_ms=0),
    *[lambda session, held: session.call("pgqueue_message_complete", **token(held))] * 4,
]
"""All the ways in which an attempt can end."""


def work(session: Session, watch: Watch, seed: int) -> None:
    """A consumer that ends its messages in all these ways."""
    chance = random.Random(seed)
    while session.one("select exists (select from pgqueue_message where channel is not null)"):
        batch = session.dequeue(chance.randint(1, 8), lock_ms=chance.choice([30, 60_000, 60_000]), worker=f"w{seed}")
        for message in batch:
            chance.choice(ENDS)(session, message)
        if not batch:
            time.sleep(0.002)
    watch.over.set()


def test_max_concurrency_is_never_exceeded_and_no_count_drifts(connect: Connect) -> None:
    """Also across attempts that are lost, retries, cancels, messages given back and deletes by hand."""
    session = connect()
    for name, limit in LIMITS.items():
        set_channel(session, name, max_concurrency=limit)
    for n in range(300):
        session.create(n, channel=[*LIMITS, "free"][n % 4], queue=f"q{n % 3}", max_attempts=99)
    watch = Watch(connect())
    workers: list[Callable[[], None]] = [partial(work, connect(), watch, SEED + n) for n in range(4)]

    concurrently([*workers, watch.run], seconds=100)

    assert watch.samples > 20
    assert {name: watch.most[name] for name in LIMITS if watch.most[name] > LIMITS[name]} == {}
    assert watch.most["five"] > 1, "they did run side by side"
    session.dequeue()
    assert drifted(session) == []
    assert session.column("select running from pgqueue_channel") == [0] * 4


def test_the_interval_is_kept_by_many_consumers_together(connect: Connect) -> None:
    session = connect()
    set_channel(session, release_interval_ms=40)
    session.create_batch(8, channel="acme")

    def consume(consumer: Session) -> list[int]:
        begun: list[int] = []
        while consumer.one("select exists (select from pgqueue_message)"):
            for message in consumer.dequeue(5):
                begun.append(message.unlock_at)
                consumer.call("pgqueue_message_complete", **token(message))
            time.sleep(0.003)
        return begun

    begun = sorted(at for each in concurrently([partial(consume, connect()) for _ in range(3)]) for at in each)
    assert len(begun) == 8
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) >= 40
