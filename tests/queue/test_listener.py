"""``Queue.listen``: messages come to who listens, at most so many at a time, and return when the listener goes."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from asgiref.sync import SyncToAsync
from django.db import OperationalError, connection, connections, transaction

from django_pgqueue import functions
from django_pgqueue.consumer import polling
from django_pgqueue.consumer.connection import ANSWER_SECONDS
from django_pgqueue.exceptions import AttemptLost, InvalidMessage, OutdatedQueue
from django_pgqueue.models import Attempt, Message, Worker
from django_pgqueue.queue import Queue, ReceivedMessage, receiver
from tests.support.address import conninfo
from tests.support.site.tasks import nothing
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import asleep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from django_pgqueue.queue.listener import AsyncListener, Listener
    from tests.support.fixtures.workers import Session
    from tests.support.proxy import Proxy

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = Queue("mail")


class Ear:
    """Listens.  ``next`` waits for a message, but not for ever."""

    def __init__(self, queue: Queue, **options: Any) -> None:
        self.listener = queue.listen(**options)
        self.thread = ThreadPoolExecutor(1)

    def next(self) -> ReceivedMessage:
        return self.wait().result(SECONDS)

    def wait(self) -> Future[ReceivedMessage]:
        return self.thread.submit(next, self.listener)

    def sleep(self) -> Future[ReceivedMessage]:
        """As ``wait``, and it is asleep and has looked again: only a notification brings a message."""
        waits = self.wait()
        wait_until(lambda: self.is_asleep() and self.listener._pump.polling.next_look > 0, "it sleeps")
        return waits

    def is_asleep(self) -> bool:
        return self.listener._pump.polling.asleep and bool(asleep())

    def close(self) -> None:
        self.listener.close()
        self.thread.shutdown()


@pytest.fixture
def ears(session: Session) -> Iterator[Any]:
    """Makes listeners, of which none outlives the test."""
    made: list[Ear] = []

    def listen(queue: Queue = MAIL, **options: Any) -> Ear:
        made.append(Ear(queue, **options))
        return made[-1]

    yield listen
    for ear in made:
        ear.close()
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    wait_until(lambda: not session.strangers(), "the sessions of the listeners are closed")


def held() -> int:
    return Message.objects.exclude(worker=None).count()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleepers are woken by notifications alone."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 3600.0)


def test_a_scheduled_message_reaches_a_sleeping_listener_when_it_is_due(ears: Any, no_polls: None) -> None:
    MAIL.send("later", run_after=dt.timedelta(seconds=1.2))
    message = ears().next()
    assert Message.objects.get(pk=message.id).dequeue_at <= functions.now(connection)


def test_a_sleeper_is_woken_by_a_message_and_sends_no_query_meanwhile(
    ears: Any, no_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    dequeue = functions.message_dequeue

    def counted(*given: Any, **named: Any) -> Any:
        looks.append(named)
        return dequeue(*given, **named)

    monkeypatch.setattr(functions, "message_dequeue", counted)
    waits = ears().sleep()
    before = len(looks)
    Queue("maps").send("for somebody else")
    nothing.enqueue()
    assert len(looks) == before
    MAIL.send("wake up")
    assert waits.result(SECONDS).content == "wake up"
    assert len(looks) == before + 1


@pytest.mark.parametrize("delay", [0, 0.2])
def test_a_nacked_message_returns_to_a_sleeping_listener_with_room(ears: Any, no_polls: None, delay: float) -> None:
    ear = ears(slots=2)
    MAIL.send("x")
    message = ear.next()
    waits = ear.sleep()
    message.nack(delay)
    assert waits.result(SECONDS).attempt == 2


def test_a_listener_holds_at_most_its_slots_and_an_ack_brings_the_next(ears: Any) -> None:
    MAIL.send_many(range(5))
    ear = ears(slots=2)
    messages = [ear.next(), ear.next()]
    waits = ear.wait()
    for n in (2, 3, 4):
        assert (held(), waits.done()) == (2, False)
        messages.pop(0).ack(result={"n": n})
        messages.append(waits.result(SECONDS))
        assert messages[-1].content == n
        waits = ear.wait()
    assert [a.result for a in Attempt.objects.order_by("id")] == [{"n": 2}, {"n": 3}, {"n": 4}]
    for message in messages:
        message.ack()
    assert not waits.done()
    assert not Message.objects.exists()


def test_every_end_of_a_message_makes_room(ears: Any) -> None:
    MAIL.send_many(["acked", "failed", "nacked", "retried", "last"])
    ear = ears()
    ear.next().ack()
    ear.next().fail("no such order")
    ear.next().nack(3600)
    ear.next().nack(3600, error="try again")
    assert ear.next().content == "last"
    assert list(Attempt.objects.order_by("id").values_list("status", flat=True)) == [
        "succeeded", "failed", "deferred", "retried",
    ]  # fmt: skip


def test_a_message_received_without_a_listener_can_be_acked_and_nacked() -> None:
    MAIL.send("x")
    message = MAIL.receive()
    assert message is not None
    message.nack()
    message = MAIL.receive()
    assert message is not None
    message.ack({"done": True})
    assert Attempt.objects.get(status="succeeded").result == {"done": True}


def test_closing_returns_messages_at_once_and_uses_no_attempt(ears: Any, no_polls: None) -> None:
    ear, other = ears(slots=3), ears(slots=3)
    MAIL.send_many([1, 2, 3])
    begun = ear.next()
    others = other.wait()
    wait_until(other.is_asleep, "the other one sleeps")
    ear.close()
    again = others.result(SECONDS)
    assert (again.id, again.attempt) == (begun.id, 1)
    assert not Attempt.objects.exists()
    with pytest.raises(AttemptLost):
        begun.ack()


def test_leaving_the_with_block_or_dropping_the_iterator_closes_it(ears: Any, session: Session) -> None:
    MAIL.send_many([1, 2])
    with MAIL.listen(slots=2) as messages:
        assert next(messages).content == 1
        assert held() == 2
    assert held() == 0
    for message in MAIL.listen(slots=2):
        assert (message.content, message.attempt) == (1, 1)
        break
    assert held() == 0
    assert not Worker.objects.exists()
    wait_until(lambda: not session.strangers(), "its session is closed")


def test_closing_ends_the_iteration_in_other_threads_and_for_good(ears: Any) -> None:
    ear = ears()
    waits = ear.thread.submit(list, ear.listener)
    wait_until(Worker.objects.exists, "it listens")
    ear.listener.close()
    assert waits.result(SECONDS) == []
    assert list(ear.listener) == []
    ear.listener.close()


def test_a_listener_that_never_started_can_be_closed() -> None:
    listener = MAIL.listen()
    listener.close()
    assert list(listener) == []
    assert not Worker.objects.exists()


CONSUMER = """
import django; django.setup()
from django_pgqueue.queue import Queue
for message in Queue("mail").listen(slots=2, lock_seconds=1.5):
    print(message.id, flush=True)
"""


def test_a_process_that_ends_while_it_listens_gives_back_what_it_holds(environment: dict[str, str]) -> None:
    MAIL.send("x")
    program = CONSUMER.replace("    print", "    raise SystemExit  # ") + "\n"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=SECONDS)
    assert (held(), Message.objects.get().attempt) == (0, 0)


@pytest.mark.slow
def test_messages_of_a_process_that_was_killed_come_back_before_their_locks_end(
    environment: dict[str, str], ears: Any, session: Session
) -> None:
    MAIL.send("x")
    with subprocess.Popen([sys.executable, "-c", CONSUMER], env=environment, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline()
        consumer.kill()
    session.rows("update pgqueue_message set unlock_at = unlock_at + 36000000")
    again = ears().next()
    assert (again.content, again.attempt) == ("x", 2)
    assert "no session of it is left" in str(Attempt.objects.get().error_message)
    again.ack()


def test_ctrl_c_during_a_stop_of_the_process_is_handled(environment: dict[str, str]) -> None:
    """As after Ctrl-Z: it goes to any thread that does not refuse it, and only the main thread can be woken by it."""
    MAIL.send("x")
    # A shell that starts the tests in the background has SIGINT ignored, and a child would inherit that.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{hears}\n{CONSUMER}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline()
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGCONT):
            consumer.send_signal(number)
        try:
            assert consumer.wait(SECONDS) == -signal.SIGINT
        finally:
            consumer.kill()
    assert held() == 0


def test_long_work_keeps_its_lock(ears: Any) -> None:
    MAIL.send("long")
    ear = ears(lock_seconds=1.5)
    message = ear.next()
    until = {Message.objects.get().unlock_at}

    def renewed() -> bool:
        until.add(Message.objects.get().unlock_at)
        assert MAIL.receive() is None
        return len(until) > 3

    wait_until(renewed, "the lock is renewed")
    message.ack()


def take_over(message: ReceivedMessage) -> ReceivedMessage:
    """The lock runs out and somebody else comes."""
    Message.objects.filter(pk=message.id).update(unlock_at=1)
    other = MAIL.receive()
    assert other is not None
    assert other.id == message.id
    return other


def test_a_lost_message_makes_room_and_cannot_be_acked(ears: Any, caplog: pytest.LogCaptureFixture) -> None:
    ear = ears(lock_seconds=0.6)
    MAIL.send("x")
    lost = ear.next()
    other = take_over(lost)
    MAIL.send("next")
    assert ear.next().content == "next"
    assert "lost id=" in caplog.text
    with pytest.raises(AttemptLost):
        lost.ack()
    other.complete()


def test_an_ack_that_comes_too_late_makes_room(ears: Any) -> None:
    ear = ears()
    MAIL.send("x")
    lost = ear.next()
    take_over(lost)
    with pytest.raises(AttemptLost):
        lost.ack()
    MAIL.send("next")
    assert ear.next().content == "next"


def test_an_ack_in_a_transaction_counts_when_that_commits(ears: Any) -> None:
    MAIL.send_many([1, 2])
    ear = ears(lock_seconds=0.6)
    message = ear.next()
    waits = ear.wait()
    unlock_at = Message.objects.get(pk=message.id).unlock_at
    with transaction.atomic():
        message.ack()
        assert not waits.done()
        transaction.set_rollback(True)
    # It is held as before, and its lock is renewed.
    wait_until(lambda: Message.objects.get(pk=message.id).unlock_at != unlock_at, "the lock is renewed")
    assert not waits.done()
    with transaction.atomic():
        message.ack()
        assert not waits.done()
    assert waits.result(SECONDS).content == 2


def test_the_locks_of_others_are_renewed_while_one_is_acked_in_an_open_transaction(ears: Any, session: Session) -> None:
    MAIL.send_many([1, 2])
    ear = ears(slots=2, lock_seconds=0.9)
    first, second = ear.next(), ear.next()

    def unlock_at() -> Any:
        return session.value("select unlock_at from pgqueue_message where id = %s", second.id)

    with transaction.atomic():
        first.ack()
        for _ in range(3):
            before = unlock_at()
            wait_until(lambda before=before: unlock_at() != before, "the other lock is renewed")  # type: ignore[misc]
    second.ack()
    assert Attempt.objects.filter(status="succeeded").count() == 2


def test_the_connection_of_the_caller_stays_usable(ears: Any) -> None:
    ear = ears()
    MAIL.send("x")
    message = ear.next()
    with transaction.atomic():
        assert Message.objects.count() == 1
        with pytest.raises(psycopg.Error), transaction.atomic(), connection.cursor() as cursor:
            cursor.connection.execute("select 1 / 0")
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid(), current_setting('lock_timeout'), pg_listening_channels()")
        assert cursor.fetchall() == []
    message.ack()


def test_a_lost_connection_is_reopened_and_wakes_the_sleeper_again(ears: Any, session: Session, no_polls: None) -> None:
    ear = ears(slots=2)
    MAIL.send("before")
    message = ear.next()
    waits = ear.wait()
    wait_until(ear.is_asleep, "it sleeps")
    first = session.strangers()
    for pid in first:
        session.rows("select pg_terminate_backend(%s)", pid)
    wait_until(lambda: set(session.strangers()) - set(first), "it has reconnected")
    wait_until(lambda: ear.listener._pump.polling.next_look > 0, "it has looked")
    MAIL.send("after")
    assert waits.result(SECONDS).content == "after"
    message.ack()


def test_a_listener_whose_session_never_answers_connects_anew(ears: Any, proxy: Proxy) -> None:
    ear = ears(slots=2)
    MAIL.send("before")
    message = ear.next()
    proxy.fall_silent()
    ear.listener._pump.connection.answer_seconds = lambda: 0.1
    MAIL.send("after")
    assert ear.next().content == "after"
    message.ack()


def test_a_listener_whose_session_never_answers_can_be_closed(
    ears: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_LEAVE_SECONDS", 0.2)
    ear = ears(slots=2)
    MAIL.send("before")
    ear.next()
    proxy.fall_silent()
    ear.listener.close()
    wait_until(lambda: not ear.listener._pump.thread.is_alive(), "its thread has ended")


def test_a_lock_lasts_from_the_claim_and_not_from_its_answer(ears: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may come so late that the first heartbeat is due at once."""
    asked: list[float] = []

    def dequeue(*args: Any, original: Any = functions.message_dequeue, **kwargs: Any) -> Any:
        now = time.monotonic()
        claimed = original(*args, **kwargs)
        asked.extend([now] * len(claimed))
        return claimed

    monkeypatch.setattr(functions, "message_dequeue", dequeue)
    ear = ears(slots=2, lock_seconds=300)
    MAIL.send("first")
    first = ear.next()
    assert ear.listener._pump.next_heartbeat <= asked[0] + 100
    MAIL.send("second")
    for message in (first, ear.next()):
        message.ack()
    assert ear.listener._pump.next_heartbeat <= asked[0] + 100


def test_no_claim_of_a_listener_outlives_its_session(
    ears: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim behind a lock of the table ends in time, and is tried again."""
    assert receiver.STATEMENT_MS < 1000 * ANSWER_SECONDS
    monkeypatch.setattr(receiver, "STATEMENT_MS", 1000)
    ear = ears(slots=2)
    MAIL.send("behind the lock")
    with psycopg.connect(conninfo()) as opened:
        opened.execute("lock table pgqueue_message")
        waits = ear.wait()
        wait_until(lambda: "canceling statement due to statement timeout" in caplog.text, "its claim has ended")
    assert waits.result(SECONDS).content == "behind the lock"


def test_threads_share_a_listener_and_processes_a_queue(ears: Any) -> None:
    got: list[Any] = []

    def work(listener: Listener) -> None:
        for message in listener:
            message.ack()
            got.append(message.content)
        connections.close_all()

    listeners = [ears(slots=3).listener for _ in range(2)]
    threads = [threading.Thread(target=work, args=[listener]) for listener in listeners * 2]
    for thread in threads:
        thread.start()
    for n in range(10):
        MAIL.send_many(range(n * 10, n * 10 + 10))
    wait_until(lambda: len(got) >= 100, "all have come")
    for listener in listeners:
        listener.close()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(got) == list(range(100))
    assert not Message.objects.exists()


def test_tasks_in_a_queue_of_the_same_name_are_left_to_workers(ears: Any) -> None:
    nothing.using(queue_name="mail").enqueue()
    MAIL.send("raw")
    ear = ears(slots=9)
    assert ear.next().content == "raw"
    assert Message.objects.get(worker=None).task == nothing.module_path


def test_a_listener_is_listed_among_the_workers(ears: Any) -> None:
    ear = ears(slots=3)
    MAIL.send("x")
    assert ear.next().worker == ear.listener._pump.id
    wait_until(Worker.objects.exists, "it is seen")
    seen = Worker.objects.get()
    assert (seen.id, seen.queues, seen.slots, seen.tasks) == (ear.listener._pump.id, ["mail"], 3, False)
    ear.close()
    assert not Worker.objects.exists()


def test_a_listener_without_notifications_polls(ears: Any, session: Session, settings: Any) -> None:
    ear = ears(notifications=False)
    waits = ear.wait()
    wait_until(lambda: ear.listener._pump.polling.next_look > 1, "it has looked")
    MAIL.send("x")
    assert waits.result(SECONDS).content == "x"
    assert not asleep()
    assert ear.listener._pump.connection.prepare_threshold is None
    settings.TASKS = {
        "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": {"LISTEN": False}},
        "other": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
    }
    assert ears().listener._pump.polling.listen is False
    assert ears(notifications=True).listener._pump.polling.listen is True


def test_invalid_options_are_refused_at_once() -> None:
    for wrong in ({"slots": 0}, {"slots": True}, {"slots": 10_001}, {"lock_seconds": 0}):
        for listen in (MAIL.listen, MAIL.alisten):
            with pytest.raises(InvalidMessage, match=next(iter(wrong))):
                listen(**wrong)


def test_a_database_unavailable_at_the_start_is_an_error_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    with pytest.raises((psycopg.OperationalError, OperationalError)):
        next(MAIL.listen())


@pytest.fixture
def no_thread_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses to start the thread of the first listener."""
    start = threading.Thread.start
    refused: list[str] = []

    def start_or_not(thread: threading.Thread) -> None:
        if thread.name == "pgqueue-listen-mail" and not refused:
            refused.append(thread.name)
            message = "can't start new thread"
            raise RuntimeError(message)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)


def test_a_system_without_more_threads_is_an_error_of_the_caller_who_may_try_again(
    ears: Any, no_thread_at_first: None
) -> None:
    MAIL.send("hello")
    ear = ears()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ear.next()
    assert ear.next().content == "hello"


def test_a_listener_that_got_no_thread_can_be_closed_and_leaves_no_session(
    session: Session, no_thread_at_first: None
) -> None:
    listener = MAIL.listen()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        next(listener)
    listener.close()
    with pytest.raises(StopIteration):
        next(listener)
    wait_until(lambda: not session.strangers(), "its session is closed")


def test_an_error_that_does_not_go_away_ends_the_iteration(ears: Any, session: Session) -> None:
    ear = ears()
    waits = ear.wait()
    wait_until(Worker.objects.exists, "it listens")
    session.rows("alter function pgqueue_message_dequeue rename to pgqueue_hidden")
    try:
        with pytest.raises(OutdatedQueue, match=r"Run manage\.py migrate"):
            waits.result(SECONDS)
    finally:
        session.rows("alter function pgqueue_hidden rename to pgqueue_message_dequeue")
    assert list(ear.listener) == []


@pytest.mark.usefixtures("ears")
class TestAsync:
    def test_messages_are_received_ended_and_returned(self) -> None:
        MAIL.send_many([1, 2, 3])

        async def scenario() -> list[Any]:
            got = []
            async with MAIL.alisten(slots=2) as messages:
                async for message in messages:
                    got.append((message.content, message.attempt))
                    if len(got) == 4:
                        break
                    if got[-1] == (2, 1):
                        await message.anack(0.01)
                    else:
                        await message.aack()
            return got

        got = asyncio.run(scenario())
        assert sorted(got) == [(1, 1), (2, 1), (2, 2), (3, 1)]
        assert held() == 0
        assert Message.objects.get().content == got[-1][0]

    def test_a_waiting_listener_gets_messages_while_other_coroutines_run(self) -> None:
        async def scenario() -> Any:
            async with asyncio.timeout(SECONDS), MAIL.alisten() as messages:
                waits = asyncio.ensure_future(anext(messages))
                await asyncio.to_thread(somebody_listens)
                await asyncio.to_thread(send, "x")
                message = await waits
                await message.aack()
                return message.content

        assert asyncio.run(scenario()) == "x"
        assert not Message.objects.exists()

    def test_a_wait_that_is_cancelled_loses_no_message(self) -> None:
        async def scenario() -> Any:
            async with asyncio.timeout(SECONDS), MAIL.alisten() as messages:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(messages)
                await asyncio.to_thread(send, "x")
                return (await anext(messages)).content

        assert asyncio.run(scenario()) == "x"

    def test_a_dropped_iterator_returns_its_messages(self) -> None:
        MAIL.send("x")

        async def scenario() -> None:
            async for _ in MAIL.alisten():
                break

        asyncio.run(scenario())
        assert (held(), Message.objects.get().attempt) == (0, 0)

    def test_a_cancelled_loop_returns_its_messages(self) -> None:
        MAIL.send("x")

        async def consume(messages: AsyncListener, begun: asyncio.Event) -> None:
            async with messages:
                async for _ in messages:
                    begun.set()

        async def scenario() -> None:
            begun = asyncio.Event()
            task = asyncio.ensure_future(consume(MAIL.alisten(), begun))
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scenario())
        assert held() == 0

    def test_a_closed_listener_yields_no_message(self) -> None:
        async def scenario() -> list[Any]:
            messages = MAIL.alisten()
            await messages.aclose()
            return [message async for message in messages]

        assert asyncio.run(scenario()) == []


def somebody_listens() -> None:
    wait_until(Worker.objects.exists, "somebody listens")
    connection.close()


def send(content: Any) -> None:
    MAIL.send(content)
    connection.close()


@pytest.mark.slow
def test_the_messages_of_a_dead_consumer_return_when_their_locks_run_out(
    ears: Any, environment: dict[str, str]
) -> None:
    sent = MAIL.send_many([1, 2, 3])
    with subprocess.Popen([sys.executable, "-c", CONSUMER], env=environment, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout is not None
        assert int(consumer.stdout.readline()) == sent[0]
        consumer.kill()
    ear = ears()
    attempts = {}
    for _ in sent:
        message = ear.next()
        attempts[message.id] = message.attempt
        message.ack()
    assert attempts == {sent[0]: 2, sent[1]: 2, sent[2]: 1}
    assert set(Attempt.objects.filter(status="lost").values_list("message_id", flat=True)) == set(sent[:2])
