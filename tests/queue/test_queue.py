"""Raw messages in Python: ``Queue`` and what it gives to consumers, in and out of transactions."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.db import ProgrammingError, connection, transaction

from django_pgqueue.exceptions import AttemptLost, InvalidContent, InvalidMessage
from django_pgqueue.models import Attempt, Message
from django_pgqueue.queue import Queue, ReceivedMessage
from django_pgqueue.testing import clock
from tests.support.fixtures.sessions import connect, sessions, test_database
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fixtures.sessions import Connect

__all__ = ["connect", "sessions", "test_database"]

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)

MAIL = Queue("mail")


def taken(queue: Queue = MAIL, **parameters: Any) -> ReceivedMessage:
    """The next message, which must be there."""
    message = queue.receive(**parameters)
    assert message is not None
    return message


# Sending and receiving


def test_a_message_is_received_with_all_its_values() -> None:
    message_id = MAIL.send(
        {"order": 7}, priority=-3, dequeue_at=-5, channel="tenant", headers={"trace": "abc"}, max_attempts=2
    )
    message = taken()
    assert (message.id, message.content, message.headers, message.state) == (
        message_id,
        {"order": 7},
        {"trace": "abc"},
        None,
    )
    assert (message.queue, message.channel, message.priority) == ("mail", "tenant", -3)
    assert (message.attempt, message.max_attempts) == (1, 2)
    assert message.worker.startswith("session-")
    assert message.created_at == Message.objects.get().created_at


def test_queues_do_not_share_messages() -> None:
    Queue("maps").send(1)
    assert MAIL.receive() is None
    assert taken(Queue("maps")).content == 1


def test_messages_of_tasks_are_left_to_the_workers() -> None:
    Message.objects.create(queue="mail", task="shop.tasks.send", content={}, dequeue_at=0)
    assert MAIL.receive() is None


def test_many_messages_are_sent_and_received_in_order() -> None:
    ids = MAIL.send_many(({"n": n} for n in range(500)), priority=4, channel="tenant")
    messages = MAIL.receive_many(1000)
    assert [message.id for message in messages] == ids
    assert [message.content for message in messages] == [{"n": n} for n in range(500)]
    assert {(message.priority, message.channel, message.max_attempts) for message in messages} == {(4, "tenant", 5)}


def test_an_error_of_the_senders_own_query_is_no_outdated_queue() -> None:
    def rows() -> Iterator[Any]:
        with connection.cursor() as cursor:
            cursor.execute("select id from nowhere")
            yield from cursor

    with pytest.raises(ProgrammingError, match="nowhere"), transaction.atomic():
        Queue("mail").send_many(rows())


def test_a_message_is_received_after_the_given_time() -> None:
    with clock(dt.datetime.fromtimestamp(NOON / 1000, tz=dt.UTC)) as now:
        MAIL.send("delay", run_after=dt.timedelta(minutes=5))
        MAIL.send("time", run_after=now.at + dt.timedelta(minutes=6))
        MAIL.send("milliseconds", dequeue_at=NOON + 7 * 60_000)
        for content in ("delay", "time", "milliseconds"):
            assert MAIL.receive() is None
            now.advance(dt.timedelta(minutes=5 if content == "delay" else 1))
            taken_message = taken()
            assert taken_message.content == content
            taken_message.complete()


@pytest.mark.parametrize("run_after", [dt.timedelta.max, dt.timedelta.min, dt.timedelta(seconds=-1)])
def test_the_longest_and_the_most_negative_delay_are_delays(run_after: dt.timedelta) -> None:
    MAIL.send("x", run_after=run_after)
    assert (MAIL.receive() is None) is (run_after > dt.timedelta(0))


# Ending


def test_a_completed_message_leaves_its_result_in_the_history() -> None:
    MAIL.send({"order": 7})
    taken().complete({"sent": True})
    assert not Message.objects.exists()
    end = Attempt.objects.get()
    assert (end.status, end.result, end.content) == ("succeeded", {"sent": True}, {"order": 7})


def test_a_deferred_message_comes_back_with_its_state() -> None:
    with clock() as now:
        MAIL.send("x", max_attempts=1)
        for page in range(5):
            message = taken()
            assert (message.attempt, message.state) == (page + 1, {"page": page} if page else None)
            message.defer(60, state={"page": page + 1})
            assert MAIL.receive() is None
            now.advance(dt.timedelta(seconds=60))


def test_a_message_deferred_with_errors_fails_after_max_attempts() -> None:
    MAIL.send("x", max_attempts=2)
    taken().defer(error=OSError("no network"))
    taken().defer(error="still no network")
    assert MAIL.receive() is None
    first, last = Attempt.objects.order_by("id")
    assert (first.status, first.error_class, first.error_message) == ("retried", "builtins.OSError", "no network")
    assert (last.status, last.error_class, last.error_message) == ("failed", None, "still no network")


def test_a_failed_message_leaves_its_error_with_the_traceback_in_the_history() -> None:
    MAIL.send("x")
    try:
        connection.settings_dict["missing"]
    except KeyError as error:
        taken().fail(error)
    end = Attempt.objects.get()
    assert (end.status, end.error_class, end.error_message) == ("failed", "builtins.KeyError", "'missing'")
    assert end.traceback is not None
    assert "test_queue.py" in end.traceback


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("a\x00b\ud800c"), "a\N{REPLACEMENT CHARACTER}b?c"),
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        (ValueError(), "ValueError"),
        (UnprintableError(), "UnprintableError (its text is not available: RuntimeError)"),
        ("", ""),
    ],
)
def test_errors_that_postgresql_could_not_store_are_stored_as_far_as_possible(
    error: BaseException | str, message: str
) -> None:
    MAIL.send("x")
    taken().fail(error)
    assert Attempt.objects.get().error_message == message


def test_a_heartbeat_keeps_the_message_while_the_work_goes_on() -> None:
    with clock() as now:
        MAIL.send("x")
        message = taken(lock_seconds=30)
        for _ in range(5):
            now.advance(dt.timedelta(seconds=29))
            assert MAIL.receive() is None
            message.heartbeat(lock_seconds=30)
        message.complete()


ENDINGS: dict[str, Callable[[ReceivedMessage], None]] = {
    "complete": lambda message: message.complete(),
    "defer": lambda message: message.defer(),
    "retry": lambda message: message.defer(error="no"),
    "fail": lambda message: message.fail("no"),
    "heartbeat": lambda message: message.heartbeat(),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending_a_lost_message_is_an_error_with_the_next_step(name: str) -> None:
    with clock() as now:
        MAIL.send("x")
        lost = taken(lock_seconds=30)
        now.advance(dt.timedelta(seconds=30))
        assert taken().attempt == 2
        before = list(Message.objects.values())
        with pytest.raises(AttemptLost, match=rf"Message {lost.id} of queue 'mail': attempt 1 .*longer lock_seconds"):
            ENDINGS[name](lost)
        assert list(Message.objects.values()) == before


# In and out of transactions


@committed
def test_a_message_sent_in_a_transaction_is_visible_after_the_commit(connect: Connect) -> None:
    other = connect()
    with transaction.atomic():
        User.objects.create(username="anna")
        MAIL.send("welcome")
        assert other.messages() == []
    assert [message.content for message in other.messages()] == ["welcome"]


@committed
def test_work_and_completion_are_one_transaction() -> None:
    """Effects in the database happen once: what the work has written goes back with an end that fails."""
    MAIL.send("sign up anna")
    message = taken()
    with transaction.atomic():
        User.objects.create(username="anna")
        message.complete()
        transaction.set_rollback(True)
    assert not User.objects.exists()
    with transaction.atomic():
        User.objects.create(username="anna")
        message.complete()
    assert User.objects.count() == 1
    assert Attempt.objects.get().status == "succeeded"


@committed
def test_a_message_completed_in_the_transaction_of_its_receive_is_hidden_from_others(connect: Connect) -> None:
    other = connect()
    MAIL.send_many([1, 2])
    with transaction.atomic():
        taken().complete()
        assert [message.content for message in other.dequeue(10)] == [2]
    assert [message.content for message in other.messages()] == [2]


# What cannot be meant


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"priority": 101}, "priority=101 is not a whole number from -100 to 100"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": True}, "priority=True"),
        ({"priority": "high"}, "priority='high'"),
        ({"run_after": dt.datetime(2024, 5, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"channel": "a\x00"}, "name of a channel"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": 2**31}, "max_attempts="),
        ({"max_attempts": 1.0}, "max_attempts=1.0"),
    ],
)
def test_an_invalid_message_is_refused_before_any_sql(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        MAIL.send("x", **parameters)
    assert not Message.objects.exists(), "the transaction is as it was"


WRONG_LOCKS = [0, -1, math.nan, math.inf, 1e10, "60", None, True]
REFUSED: dict[str, tuple[Callable[[ReceivedMessage, Any], Any], list[Any], str]] = {
    "name": (lambda _, name: Queue(name), ["", "a\x00", None, 7], "name of a queue"),
    "limit": (lambda _, limit: MAIL.receive_many(limit), [0, -1, 1.0, True, None, "5", 2**31, 10**30], "limit="),
    "lock": (lambda _, seconds: MAIL.receive(lock_seconds=seconds), WRONG_LOCKS, "lock_seconds="),
    "heartbeat": (lambda message, seconds: message.heartbeat(lock_seconds=seconds), WRONG_LOCKS, "lock_seconds="),
    "wait": (
        lambda message, seconds: message.defer(seconds),
        [math.nan, math.inf, -math.inf, 1e30, -1e30, "60", None],
        "seconds=",
    ),
    "error of fail": (lambda message, error: message.fail(error), [{"code": 7}, 7, None], "error="),
    "error of nack": (lambda message, error: message.nack(error=error), [{"code": 7}, 7], "error="),
}


@pytest.mark.parametrize(("what", "wrong"), [(what, wrong) for what, row in REFUSED.items() for wrong in row[1]])
def test_a_refused_value_leaves_the_message_with_its_receiver(what: str, wrong: Any) -> None:
    call, _, why = REFUSED[what]
    MAIL.send("x")
    message = taken()
    with pytest.raises(InvalidMessage, match=why):
        call(message, wrong)
    message.complete()


@pytest.mark.parametrize("seconds", [0, 0.5, -5, 1e9, dt.timedelta(seconds=90).total_seconds()])
def test_any_number_of_seconds_is_a_valid_wait(seconds: float) -> None:
    with clock(dt.datetime.fromtimestamp(NOON / 1000, tz=dt.UTC)):
        MAIL.send("x")
        taken().defer(seconds)
        assert Message.objects.get().dequeue_at.epoch_ms == NOON + round(seconds * 1000)


def test_a_value_that_is_not_json_leaves_the_message_locked() -> None:
    MAIL.send("x")
    message = taken()
    with pytest.raises(InvalidContent, match="result is <object"):
        message.complete(object())
    with pytest.raises(InvalidContent, match="state"):
        message.defer(state=math.nan)
    message.complete()


# Rows that somebody has written by hand


def test_content_that_python_cannot_read_is_received_and_can_be_failed() -> None:
    """One such message in a batch must not keep its neighbours from being worked on."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_create(%s::jsonb, 'mail')", ["9" * 5000])
    MAIL.send("neighbour")
    unreadable, neighbour = MAIL.receive_many(2)
    assert neighbour.content == "neighbour"
    with pytest.raises(ValueError, match="4300 digits") as error:
        unreadable.content  # noqa: B018
    unreadable.fail(error.value)
    assert Attempt.objects.values_list("status").get() == ("failed",)


def test_a_minimal_row_is_a_message() -> None:
    with connection.cursor() as cursor:
        cursor.execute("""insert into pgqueue_message (dequeue_at, content, queue) values (0, 'null', 'mail')""")
    message = taken()
    assert (message.content, message.headers, message.max_attempts) == (None, None, None)
    message.complete()


# Small things


def test_the_repr_of_a_message_shows_its_values() -> None:
    message_id = MAIL.send("x")
    assert repr(taken()) == f"<ReceivedMessage {message_id} of queue 'mail', attempt 1>"


@committed
@pytest.mark.parametrize("armed", [False, True])
def test_a_receive_in_a_transaction_blocks_no_other_channel(connect: Connect, armed: bool) -> None:
    for number in range(20):
        MAIL.send(number, channel=f"channel {number}")
    other = connect()
    if armed:
        other.value("pgqueue_lane_arm")
    with transaction.atomic():
        held = taken()
        rest = [message.content for message in other.dequeue(100)]
    assert sorted([held.content, *rest]) == list(range(20))


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a savepoint in one, that ends with an error."""
    with suppress(OrderRefusedError), transaction.atomic():
        yield
        raise OrderRefusedError


class OrderRefusedError(Exception):
    pass


@committed
def test_a_message_that_is_rolled_back_was_never_sent(connect: Connect) -> None:
    with rolled_back():
        MAIL.send("receipt")
        MAIL.send_many(["copy", "copy"])
    assert MAIL.receive() is None
    assert connect().history() == []


@committed
def test_a_receive_that_is_rolled_back_counts_no_attempt() -> None:
    MAIL.send("x")
    with rolled_back():
        assert taken().attempt == 1
    assert taken().attempt == 1


@committed
def test_a_lost_attempt_rolls_back_the_writes_of_its_work(connect: Connect) -> None:
    MAIL.send("sign up anna")
    with clock() as now:
        lost = taken(lock_seconds=1)
        now.advance(dt.timedelta(seconds=1))
        taken()

    @transaction.atomic
    def work() -> None:
        User.objects.create(username="anna")
        lost.complete()

    with pytest.raises(AttemptLost):
        work()
    assert not User.objects.exists()
