"""BlaboSoft's "Implementing a Simple Queue in PostgreSQL": push, an atomic pop, finalising, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.exceptions import AttemptLost
from tests.promises.seeds.faces import NotOursError, SqlQueue
from tests.support.sessions import NOON, concurrently

if TYPE_CHECKING:
    from django_pgqueue.queue import ReceivedMessage
    from tests.promises.seeds.conftest import Clock, Face
    from tests.promises.seeds.faces import SqlMessage
    from tests.support.fixtures.sessions import Connect

MINUTE = 60_000


def popped(queue: Face) -> ReceivedMessage | SqlMessage:
    """The next item, which must be there."""
    message = queue.receive()
    assert message is not None
    return message


# Push


def test_an_item_is_pushed_with_its_payload_and_the_time(queue: Face, another: SqlQueue, clock: Clock) -> None:
    clock(NOON)
    item = queue.send("I am an awesome payload")
    [row] = another.session.messages()
    assert (row.id, row.content, row.created_at.timestamp() * 1000) == (item, "I am an awesome payload", NOON)
    assert row.locked_at is None, "nobody has begun to process it"


@pytest.mark.parametrize("payload", ["text", {"as": "JSON"}, ["a", 1, None], "", 0, None])
def test_the_payload_may_be_any_json(queue: Face, payload: object) -> None:
    queue.send(payload)
    assert popped(queue).content == payload


# Pop


def test_a_pop_gives_the_oldest_item_and_marks_it_at_once(queue: Face, another: SqlQueue, clock: Clock) -> None:
    clock(NOON)
    queue.send("first")
    queue.send("second")
    clock(NOON + 5)
    assert popped(queue).content == "first"
    first, second = another.session.messages()
    assert first.locked_at.timestamp() * 1000 == NOON + 5
    assert second.locked_at is None


def test_a_pop_of_an_empty_queue_gives_nothing(queue: Face) -> None:
    assert queue.receive() is None


def test_one_item_is_popped_by_one_actor(queue: Face, another: SqlQueue) -> None:
    queue.send("only one")
    assert popped(queue).content == "only one"
    assert another.receive() is None
    assert queue.receive() is None


def test_many_actors_pop_everything_once(queue: Face, connect: Connect) -> None:
    items = queue.send_many(list(range(500)))
    actors = [SqlQueue(connect(), "mail") for _ in range(8)]

    def pop_all(actor: SqlQueue) -> list[int]:
        ids = []
        while (message := actor.receive()) is not None:
            ids.append(message.id)
        return ids

    popped_by = concurrently([lambda a=a: pop_all(a) for a in actors])  # type: ignore[misc]
    assert sorted(item for each in popped_by for item in each) == items
    assert all(each == sorted(each) for each in popped_by), "each of them in order"


def test_an_actor_skips_an_item_that_another_is_popping(queue: Face, connect: Connect) -> None:
    """The article's plain FOR UPDATE waits for the end of the other transaction."""
    queue.send("first")
    queue.send("second")
    slow, quick = SqlQueue(connect(autocommit=False), "mail"), SqlQueue(connect(), "mail")
    quick.session.rows("set lock_timeout = '100ms'")
    assert popped(slow).content == "first"
    assert popped(quick).content == "second"
    assert quick.receive() is None


def test_a_pop_that_is_rolled_back_has_not_happened(queue: Face, connect: Connect) -> None:
    queue.send("item")
    actor = SqlQueue(connect(autocommit=False), "mail")
    popped(actor)
    actor.session.rollback()
    assert popped(queue).attempt == 1


# Finalising


def test_a_processed_item_is_deleted(queue: Face, another: SqlQueue) -> None:
    queue.send("item")
    popped(queue).complete()
    assert another.session.messages() == []


def test_an_item_can_be_finalised_once_and_by_its_holder_alone(queue: Face) -> None:
    queue.send("item")
    message = popped(queue)
    message.complete()
    with pytest.raises((AttemptLost, NotOursError)):
        message.complete()


# Errors


def test_an_error_is_stored_and_the_item_can_be_looked_at(queue: Face, another: SqlQueue) -> None:
    item = queue.send({"order": 7})
    popped(queue).fail("Something went wrong")
    [end] = another.session.history(item)
    assert (end.status, end.error_message, end.content) == ("failed", "Something went wrong", {"order": 7})


def test_a_failed_item_is_popped_again_only_on_request(queue: Face, another: SqlQueue) -> None:
    item = queue.send({"order": 7})
    popped(queue).fail("Something went wrong")
    assert queue.receive() is None
    another.session.ids("pgqueue_attempt_enqueue", attempt_ids=[another.session.history(item)[0].id])
    assert popped(queue).content == {"order": 7}


def test_an_item_that_is_to_be_tried_again_keeps_its_error_and_comes_back(
    queue: Face, another: SqlQueue, clock: Clock
) -> None:
    clock(NOON)
    item = queue.send("item")
    popped(queue).defer(30, error="Something went wrong")
    assert another.session.message(item).last_error == "Something went wrong"
    assert queue.receive() is None
    clock(NOON + 30_000)
    assert popped(queue).attempt == 2


def test_storing_an_error_does_not_get_in_the_way_of_pops(queue: Face, connect: Connect) -> None:
    queue.send_many(["broken", "fine"])
    failing = SqlQueue(connect(autocommit=False), "mail")
    popped(failing).fail("Something went wrong")
    assert popped(queue).content == "fine", "although the error is not committed yet"


def test_an_item_whose_actor_crashed_comes_back(queue: Face, another: SqlQueue, clock: Clock) -> None:
    """The article leaves it in the queue for ever: it is marked, and nobody unmarks it."""
    clock(NOON)
    item = queue.send("item")
    crashed = popped(queue)
    clock(NOON + MINUTE)
    again = popped(another)
    assert (again.id, again.attempt) == (item, 2)
    with pytest.raises((AttemptLost, NotOursError)):
        crashed.complete()
    assert [end.status for end in another.session.history(item)] == ["lost"]
    again.complete()


def test_an_item_that_crashes_every_actor_ends_as_failed_and_is_kept(
    queue: Face, another: SqlQueue, clock: Clock
) -> None:
    clock(NOON)
    item = queue.send({"order": 7}, max_attempts=3)
    for crash in range(3):
        assert popped(queue).attempt == crash + 1
        clock(NOON + (crash + 1) * MINUTE)
    assert queue.receive() is None
    ends = another.session.history(item)
    assert [end.status for end in ends] == ["lost", "lost", "failed"]
    assert ends[-1].content == {"order": 7}
