"""What LonnyMQ's own suite tests of its channels and messages, in our own words: to tick off.

Its names: CHANNEL_SET, CHANNEL_RELEASE, MESSAGE_CREATE, MESSAGE_DEQUEUE, MESSAGE_COMPLETE, MESSAGE_DEFER,
MESSAGE_HEARTBEAT; its answers MESSAGE_DROPPED and STATE_INVALID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.lanes import channel, contents, set_channel
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.sessions import Session


class TestChannelSet:
    def test_it_makes_a_channel_with_its_policy(self, session: Session) -> None:
        set_channel(session, max_concurrency=2, max_size=3, release_interval_ms=4)
        row = channel(session)
        assert (row.max_concurrency, row.max_size, row.release_interval_ms) == (2, 3, 4)

    def test_it_changes_the_policy_of_one_that_is_there(self, session: Session) -> None:
        set_channel(session, max_concurrency=2)
        set_channel(session, max_concurrency=7)
        assert channel(session).max_concurrency == 7

    def test_messages_need_no_channel_that_was_set(self, session: Session) -> None:
        session.create(channel="acme")
        assert session.take().channel == "acme"


class TestChannelRelease:
    def test_an_empty_channel_is_gone(self, session: Session) -> None:
        set_channel(session)
        session.call("pgqueue_channel_release", name="acme")
        assert channel(session) is None

    def test_one_with_messages_drains_first(self, session: Session) -> None:
        session.create(channel="acme")
        held = session.take()
        session.call("pgqueue_channel_release", name="acme")
        assert channel(session) is not None
        session.call("pgqueue_message_complete", **token(held))
        session.dequeue()
        assert channel(session) is None


class TestMessageCreate:
    def test_it_answers_the_id(self, session: Session) -> None:
        message = session.create({"n": 1}, channel="acme")
        assert session.message(message).content == {"n": 1}

    def test_it_is_dropped_when_the_channel_is_full(self, session: Session) -> None:
        set_channel(session, max_size=1)
        session.create("taken", channel="acme")
        assert session.value("pgqueue_message_create", content="dropped", channel="acme") is None
        assert contents(session.messages()) == ["taken"]

    def test_there_is_room_again_when_one_was_dequeued(self, session: Session) -> None:
        set_channel(session, max_size=1)
        session.create(channel="acme")
        session.take()
        assert session.create(channel="acme") is not None


class TestMessageDequeue:
    def test_first_in_first_out(self, session: Session) -> None:
        session.create_batch(3, channel="acme")
        assert [session.take().content for _ in range(3)] == [0, 1, 2]

    def test_an_empty_queue_answers_nothing(self, session: Session) -> None:
        assert session.dequeue() == []

    def test_what_is_scheduled_waits(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme", dequeue_at=NOON + 10)
        assert session.dequeue() == []
        session.set_clock(NOON + 10)
        assert session.dequeue() != []

    def test_no_more_than_max_concurrency_are_out(self, session: Session) -> None:
        set_channel(session, max_concurrency=1)
        session.create_batch(2, channel="acme")
        held = session.take()
        assert session.dequeue() == []
        session.call("pgqueue_message_complete", **token(held))
        assert contents(session.dequeue()) == [1]

    def test_the_release_interval_passes_between_two(self, session: Session) -> None:
        session.set_clock(NOON)
        set_channel(session, release_interval_ms=50)
        session.create_batch(2, channel="acme")
        session.take()
        assert session.dequeue() == []
        session.set_clock(NOON + 50)
        assert session.dequeue() != []

    def test_channels_take_turns(self, session: Session) -> None:
        for name in ("a", "b"):
            session.create_batch(20, channel=name)
        assert {message.channel for message in session.dequeue(12)} == {"a", "b"}

    def test_a_message_whose_lock_ran_out_is_dequeued_again(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme")
        first = session.take(lock_ms=100)
        session.set_clock(NOON + 100)
        second = session.take()
        assert (second.id, second.attempt) == (first.id, 2)


class TestMessageComplete:
    def test_the_message_is_gone(self, session: Session) -> None:
        session.create(channel="acme")
        assert session.value("pgqueue_message_complete", **token(session.take())) is True
        assert session.messages() == []

    def test_after_the_lock_was_lost_the_state_is_invalid(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme")
        lost = session.take(lock_ms=100)
        session.set_clock(NOON + 100)
        session.take()
        assert session.value("pgqueue_message_complete", **token(lost)) is False
        assert len(session.messages()) == 1


class TestMessageDefer:
    def test_the_state_is_there_the_next_time(self, session: Session) -> None:
        session.create(channel="acme")
        held = session.take()
        assert session.value("pgqueue_message_defer", **token(held), state={"step": 2}) == "deferred"
        again = session.take()
        assert (again.state, again.attempt) == ({"step": 2}, 2)

    def test_it_waits_until_its_time_and_gives_its_place_back(self, session: Session) -> None:
        session.set_clock(NOON)
        set_channel(session, max_concurrency=1)
        session.create_batch(2, channel="acme")
        held = session.take()
        session.call("pgqueue_message_defer", **token(held), dequeue_at=NOON + 500)
        other = session.take()
        assert other.content == 1
        session.call("pgqueue_message_complete", **token(other))
        assert session.dequeue() == []
        session.set_clock(NOON + 500)
        assert session.take().content == 0

    def test_after_the_lock_was_lost_the_state_is_invalid(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme")
        lost = session.take(lock_ms=100)
        session.set_clock(NOON + 100)
        session.take()
        assert session.value("pgqueue_message_defer", **token(lost)) is None


class TestMessageHeartbeat:
    def test_it_lengthens_the_lock(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme")
        held = session.take(lock_ms=100)
        session.set_clock(NOON + 90)
        assert session.value("pgqueue_message_heartbeat", **token(held), lock_ms=100) is True
        session.set_clock(NOON + 150)
        assert session.dequeue() == []

    def test_after_the_lock_was_lost_the_state_is_invalid(self, session: Session) -> None:
        session.set_clock(NOON)
        session.create(channel="acme")
        lost = session.take(lock_ms=100)
        session.set_clock(NOON + 100)
        session.take()
        assert session.value("pgqueue_message_heartbeat", **token(lost), lock_ms=100) is False
