"""``IDLE_POLL_SECONDS``: a worker with nothing to do leaves the database alone, and nothing is late for it."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import control, functions
from django_pgqueue.functions import worker as worker_functions
from django_pgqueue.models import Attempt, Message, Worker
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.workers import workers
from tests.support.address import conninfo, url
from tests.support.proxy import Proxy
from tests.support.site import jobs
from tests.support.site.tasks import fail_with_backoff, hold, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import ended, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.worker.process import WorkerProcess
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session, Start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

LONG = 600.0
SOON = dt.timedelta(seconds=3)
IDLE_SECONDS = float(os.environ.get("PGQUEUE_IDLE_SECONDS", "10"))
"""Ten seconds show ten polls.  The long form is five minutes: PGQUEUE_IDLE_SECONDS=300."""


def rests(consumer: WorkerProcess) -> bool:
    return consumer.polling.rests


def resting(consume: Consume, **settings: Any) -> WorkerProcess:
    consumer = consume(idle_poll_seconds=LONG, **settings)
    wait_until(lambda: rests(consumer), "it rests")
    return consumer


@pytest.fixture
def other(transactional_db: None) -> Iterator[psycopg.Connection]:
    with psycopg.connect(conninfo()) as opened:
        yield opened


class TestWhatWakesIt:
    def test_a_message(self, consume: Consume) -> None:
        consumer = resting(consume)
        ended(jobs.which_session.enqueue())
        wait_until(lambda: rests(consumer), "it rests again")

    def test_a_message_that_is_due_before_its_next_look(self, consume: Consume, session: Session) -> None:
        resting(consume)
        result = jobs.which_session.using(run_after=SOON).enqueue()
        [(wait_ms,)] = session.rows(
            "select extract(epoch from started_at) * 1000 - dequeue_at from pgqueue_attempt where message_id = %s",
            int(ended(result).id),
        )
        assert wait_ms >= 0

    def test_each_way_to_enqueue_for_later(self, consume: Consume, session: Session) -> None:
        consumer = resting(consume)
        content, task = '{"args": [], "kwargs": {}}', jobs.which_session.module_path
        item = '[{"content": {"args": [], "kwargs": {}}, "task": "%s", "dequeue_at": %s}]'
        for statement in (
            "select pgqueue_message_create_unique('k', %(content)s, p_task => %(task)s, p_dequeue_at => %(at)s)",
            "select pgqueue_message_create_many('[%(raw)s]', 'default', p_task => %(task)s, p_dequeue_at => %(at)s)",
            "select pgqueue_message_create_many(%(item)s)",
        ):
            wait_until(lambda: rests(consumer), "it rests")
            at = session.value("select pgqueue_now()") + 1500
            with psycopg.connect(conninfo(), autocommit=True, cursor_factory=psycopg.ClientCursor) as client:
                client.execute(
                    statement.replace("%(raw)s", content),
                    {"content": content, "task": task, "at": at, "item": item % (task, at)},
                )
            wait_until(lambda: not Message.objects.exists(), f"it was run in time: {statement}")

    @pytest.mark.parametrize(("listen", "seconds"), [(True, LONG), (False, 3.0)])
    def test_an_order(self, consume: Consume, listen: bool, seconds: float) -> None:
        consumer = consume(idle_poll_seconds=seconds, listen=listen)
        wait_until(lambda: rests(consumer), "it rests")
        control.order_worker(consumer.id, "slots", slots=3)
        wait_until(lambda: consumer.slots.count == 3, "it has three slots")
        wait_until(lambda: rests(consumer), "it rests again")
        control.order_worker(consumer.id, "pause")
        wait_until(lambda: consumer.orders.is_paused, "it is paused")
        control.order_worker(consumer.id, "resume")
        wait_until(lambda: rests(consumer) and not consumer.orders.is_paused, "it goes on, and rests again")

    def test_an_order_whose_time_is_before_its_last_look(self, consume: Consume, session: Session) -> None:
        """It was committed late, or comes from a server whose clock was behind."""
        consumer = consume(idle_poll_seconds=3.0)
        wait_until(lambda: rests(consumer), "it rests")
        session.rows(
            "update pgqueue_worker set ordered = 'pause', ordered_by = 'me', ordered_at = seen_at - interval '1 hour'"
        )
        wait_until(lambda: consumer.orders.is_paused, "it is paused")
        session.rows("update pgqueue_worker set ordered = null")
        wait_until(lambda: rests(consumer) and not consumer.orders.is_paused, "it goes on, and rests again")

    def test_a_message_that_is_moved_to_an_earlier_time(self, consume: Consume) -> None:
        later = jobs.which_session.using(run_after=dt.timedelta(hours=2)).enqueue()
        resting(consume)
        at = functions.now(connection) + SOON
        functions.message_move(connection, int(later.id), dequeue_at=int(at.timestamp() * 1000))
        ended(later)

    def test_a_message_whose_dependency_has_ended(self, consume: Consume) -> None:
        consumer = resting(consume)
        first = jobs.which_session.enqueue()
        ended(first)
        wait_until(lambda: rests(consumer), "it rests again")
        ended(jobs.which_session.using(after=[first]).enqueue())

    def test_a_channel_with_room(self, consume: Consume) -> None:
        consumer = resting(consume)
        control.set_channel("acme", max_concurrency=0)
        held_back = jobs.which_session.using(channel="acme").enqueue()
        wait_until(lambda: rests(consumer), "it rests again")
        control.set_channel("acme", max_concurrency=1)
        ended(held_back)

    def test_a_schedule_that_is_resumed(self, consume: Consume, session: Session) -> None:
        make_schedule(session, "every second", in_ms=-1000, paused=True, interval_ms=2000)
        consumer = resting(consume)
        control.resume_schedule("every second")
        wait_until(lambda: Message.objects.exists() or fired(), "it was fired")
        control.pause_schedule("every second")
        wait_until(lambda: rests(consumer), "it rests again")


class TestWhatItKnows:
    def test_the_next_message(self, consume: Consume) -> None:
        result = jobs.which_session.using(run_after=SOON).enqueue()
        resting(consume)
        ended(result)

    def test_the_next_slot_of_a_schedule(self, consume: Consume, session: Session) -> None:
        make_schedule(session, "soon", in_ms=3000)
        resting(consume)
        wait_until(lambda: Message.objects.exists() or fired(), "it was fired")

    def test_the_lock_of_a_dead_worker(self, consume: Consume, session: Session) -> None:
        result = jobs.which_session.enqueue()
        session.rows("select pgqueue_message_dequeue(p_lock_ms => 3000, p_worker => 'dead', p_tasks => true)")
        resting(consume)
        ended(result)

    def test_it_looks_at_its_time_without_a_notification(self, consume: Consume, session: Session) -> None:
        consumer = consume(idle_poll_seconds=2.0)
        wait_until(lambda: rests(consumer), "it rests")
        session.rows(  # and so nobody is notified
            "insert into pgqueue_message (content, task, dequeue_at) values (%s, %s, 0)",
            '{"args": [], "kwargs": {}}',
            jobs.which_session.module_path,
        )
        wait_until(lambda: not Message.objects.exists(), "it has looked")

    def test_without_listen_it_only_polls(self, consume: Consume) -> None:
        result = jobs.which_session.using(run_after=SOON).enqueue()
        consumer = resting(consume, listen=False)
        row = Worker.objects.get()
        assert row.asleep_until is None
        assert row.silent_until is not None
        ended(result)
        wait_until(lambda: rests(consumer), "it rests again")


def fired() -> bool:
    return Attempt.objects.filter(headers__has_key="schedule").exists()


def make_schedule(
    session: Session, name: str, *, in_ms: int, paused: bool = False, interval_ms: int = 3_600_000
) -> None:
    session.rows(
        "insert into pgqueue_schedule (name, task, next_at, interval_ms, content, queue, priority, paused_at) "
        "values (%s, %s, pgqueue_now() + %s, %s, '{\"args\": [], \"kwargs\": {}}', 'default', 0, "
        "case when %s then now() end)",
        name, jobs.which_session.module_path, in_ms, interval_ms, paused,
    )  # fmt: skip


class TestWhenItRests:
    def test_not_before_an_open_transaction_has_ended_that_may_have_enqueued(
        self, consume: Consume, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It read the workers when this one was awake, and notifies nobody."""
        asked: list[bool] = []
        are_over = functions.transactions_are_over

        def noted(*args: Any) -> bool:
            asked.append(are_over(*args))
            return asked[-1]

        monkeypatch.setattr(functions, "transactions_are_over", noted)
        other.execute(
            "insert into pgqueue_message (content, task, dequeue_at) values (%s, %s, 0)",
            ('{"args": [], "kwargs": {}}', jobs.which_session.module_path),
        )
        consumer = consume(idle_poll_seconds=LONG)
        wait_until(lambda: len(asked) >= 3, "it has asked again and again")
        assert asked[:3] == [False] * 3
        assert not rests(consumer)
        other.commit()
        wait_until(lambda: rests(consumer), "it rests")
        assert not Message.objects.exists(), "it has found the message before"

    @pytest.mark.parametrize("track_activities", ["on", "off"])
    def test_not_before_a_transaction_with_an_old_snapshot_has_ended(
        self, consume: Consume, other: psycopg.Connection, track_activities: str
    ) -> None:
        """With REPEATABLE READ it may still read the workers as they were, and has no id yet."""
        other.execute("select set_config('track_activities', %s, false)", (track_activities,))
        other.commit()
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select id from pgqueue_worker").fetchall()
        consumer = consume(idle_poll_seconds=LONG)
        wait_until(lambda: consumer.registration.rests, "it has announced its rest")
        looks = consumer.polling.next_look
        wait_until(lambda: consumer.polling.next_look > looks + 2, "it polls")
        assert not rests(consumer)
        other.rollback()
        wait_until(lambda: rests(consumer), "it rests")

    def test_not_while_a_job_runs(self, consume: Consume, diary: Diary) -> None:
        consumer = consume(idle_poll_seconds=LONG)
        result = hold.enqueue("x")
        started(diary, "x")
        wait_until(lambda: Worker.objects.get().asleep_until is not None, "it sleeps beside its job")
        looks = consumer.polling.next_look
        wait_until(lambda: consumer.polling.next_look > looks, "it polls")
        assert not rests(consumer)
        diary.allow("x-1")
        ended(result)
        wait_until(lambda: rests(consumer), "it rests")

    def test_not_beside_another_one_that_is_awake(self, consume: Consume, session: Session) -> None:
        """That one may leave something behind of which nobody is told."""
        session.rows("insert into pgqueue_worker (id, hostname, pid, slots) values ('other', 'h', 1, 1)")
        consumer = consume(idle_poll_seconds=LONG)
        wait_until(lambda: consumer.registration.rests, "it has announced its rest")
        looks = consumer.polling.next_look
        wait_until(lambda: consumer.polling.next_look > looks + 2, "it polls")
        assert not rests(consumer)
        session.rows("update pgqueue_worker set silent_until = pgqueue_now() + 60000 where id = 'other'")
        wait_until(lambda: rests(consumer), "it rests with the other one")
        ended(jobs.which_session.enqueue())
        session.rows(
            "update pgqueue_worker set seen_at = now() - interval '2 minutes', silent_until = null where id = 'other'"
        )
        wait_until(lambda: rests(consumer), "the other one is gone")

    def test_not_while_an_unread_notification_waits(self, consume: Consume, session: Session) -> None:
        """The message is newer than what the statement saw that sends the worker to rest."""
        session.rows(
            "create function slow_rest() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(0.5); return new; end $$"
        )
        session.rows(
            "create trigger slow_rest after update on pgqueue_worker for each row "
            "when (new.silent_until is not null) execute function slow_rest()"
        )
        try:
            asks = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
            consumer = consume(idle_poll_seconds=LONG)
            for _ in range(4):
                wait_until(lambda: session.value(asks) == 1, "it asks whether it may rest")
                ended(jobs.which_session.enqueue())
            wait_until(lambda: rests(consumer), "it rests")
        finally:
            session.rows("drop trigger slow_rest on pgqueue_worker")
            session.rows("drop function slow_rest")

    def test_a_worker_without_the_option_does_not_rest(self, consume: Consume) -> None:
        consumer = consume()
        looks = consumer.polling.next_look
        wait_until(lambda: consumer.polling.next_look > looks + 2, "it polls")
        assert Worker.objects.get().silent_until is None


class TestOthersKnowThatItLives:
    def test_for_as_long_as_it_has_announced(self, consume: Consume) -> None:
        resting(consume)
        Worker.objects.update(seen_at=timezone.now() - dt.timedelta(minutes=9))
        now = timezone.now()
        assert workers(now, using="default").silent == []
        assert workers(now, using="default").idle == 1
        assert Service.at(now, using="default").serves("default")
        much_later = now + dt.timedelta(minutes=30)
        assert len(workers(much_later, using="default").silent) == 1
        assert not Service.at(much_later, using="default").serves("default")

    def test_a_worker_that_exits_does_not_delete_the_row_of_another(self, consume: Consume, session: Session) -> None:
        consumer = resting(consume)
        Worker.objects.update(seen_at=timezone.now() - dt.timedelta(minutes=11))
        session.rows("select pgqueue_worker_gone('another')")
        assert Worker.objects.get().id == consumer.id

    def test_a_worker_that_exits_wakes_it(self, consume: Consume, session: Session) -> None:
        """It does not know of the retries that the other has put back."""
        leaving, staying = resting(consume), resting(consume)
        fail_with_backoff.enqueue(3600)
        wait_until(lambda: Message.objects.filter(attempt=1, worker=None).exists(), "it waits for its retry")
        wait_until(lambda: rests(leaving) and rests(staying), "both rest")
        session.rows("update pgqueue_message set dequeue_at = 0, in_line = true")  # and nobody is notified
        leaving.stop()
        wait_until(lambda: Message.objects.filter(attempt=2).exists(), "the other one has looked")


class TestVersions:
    """A worker of a later version rests: others leave messages of that version to it, and it takes them."""

    def test_it_counts_as_living_for_as_long_as_it_has_announced(self, session: Session) -> None:
        with psycopg.connect(conninfo(), autocommit=True) as client:
            session.rows(
                "insert into pgqueue_worker (id, hostname, pid, slots, version, seen_at, silent_until) "
                "values ('rests', 'h', 1, 1, '2', now() - interval '9 minutes', pgqueue_now() + 60000)"
            )
            assert [one.version for one in functions.workers_deployed(client)] == ["2"]
            session.rows("update pgqueue_worker set silent_until = pgqueue_now() - 1")
            assert functions.workers_deployed(client) == []

    def test_an_older_worker_leaves_messages_of_its_version_to_it(self, start: Start, session: Session) -> None:
        new = start("--threads", "1", options={"IDLE_POLL_SECONDS": LONG, "VERSION": "2"})
        row = "select count(*) from pgqueue_worker where silent_until is not null"
        wait_until(lambda: session.value(row) == 1, "it has announced its rest")
        quiet_for = "select clock_timestamp() - max(state_change) from pg_stat_activity where pid = any (%s)"
        wait_until(lambda: session.value(quiet_for, session.strangers()) > dt.timedelta(seconds=2), "it polls no more")
        session.rows("update pgqueue_worker set seen_at = now() - interval '2 minutes'")
        old = start("--threads", "1", options={"VERSION": "1"})
        ids = [
            session.value(
                "select pgqueue_message_create(%s::jsonb, p_task => %s, p_version => '2')",
                '{"args": [], "kwargs": {}}',
                jobs.which_session.module_path,
            )
            for _ in range(5)
        ]
        wait_until(lambda: not Message.objects.exists(), "all have run")
        assert set(Attempt.objects.filter(message_id__in=ids).values_list("worker", flat=True)) == {id_of(new)}
        assert session.value("select count(*) from pgqueue_worker where version = '2'") == 1, "its row has its version"
        assert (old.stop(), new.stop()) == (0, 0)


class TestParkedMessages:
    """While one is parked nobody rests: whoever knows it may have missed it, and the others have to fail it in time."""

    def test_a_known_parked_message_is_taken_at_once(self, consume: Consume, session: Session) -> None:
        consumer = resting(consume)
        message_id = park(session, jobs.which_session.module_path)
        wait_until(lambda: Attempt.objects.filter(message_id=message_id).exists(), "it has run")
        wait_until(lambda: rests(consumer), "it rests again")

    def test_an_unknown_parked_message_keeps_it_from_resting(self, consume: Consume, session: Session) -> None:
        consumer = resting(consume)
        message_id = park(session, "tests.support.site.tasks.nobody")
        wait_until(lambda: Worker.objects.get().lacks is not None, "it has recorded that it lacks it")
        wait_until(lambda: not rests(consumer), "it does not rest")
        assert Worker.objects.get().silent_until is None, "and does not say so"
        looks = consumer.polling.next_look
        wait_until(lambda: consumer.polling.next_look > looks + 2, "it polls")
        assert not rests(consumer)
        session.rows("delete from pgqueue_message where id = %s", message_id)
        wait_until(lambda: rests(consumer), "it rests again")
        assert Worker.objects.get().lacks is None

    def test_a_message_parked_in_an_open_transaction_is_found(
        self, consume: Consume, session: Session, other: psycopg.Connection
    ) -> None:
        """While another transaction, which goes on, keeps the worker from resting."""
        message_id = create(session, jobs.which_session.module_path)
        with psycopg.connect(conninfo()) as parking:
            parking.execute(PARK, {"id": message_id})  # it knows of no worker, and notifies nobody
            consumer = consume(idle_poll_seconds=LONG)
            other.execute("select pg_current_xact_id()")
            wait_until(lambda: consumer.registration.rests, "it has announced its rest")
        wait_until(lambda: Attempt.objects.filter(message_id=message_id).exists(), "it has run")
        other.rollback()
        wait_until(lambda: rests(consumer), "it rests")

    def test_a_slow_server_does_not_call_it_due_later(
        self, consume: Consume, session: Session, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = worker_functions.REST.replace("least(", "least((select null::bigint from pg_sleep(0.02)),", 1)
        monkeypatch.setattr(worker_functions, "REST", slow)
        self.test_a_message_parked_in_an_open_transaction_is_found(consume, session, other)


PARK = """
with taken as materialized (
    select id, attempt from pgqueue_message_dequeue(p_worker => 'another', p_tasks => true) where id = %(id)s
)
select pgqueue_message_park(array_agg(t.id), array_agg(t.attempt), 'another', array['it lacks it']) from taken t
"""


def create(session: Session, task: str) -> int:
    """Enqueues a message, of which nobody is notified."""
    return int(
        session.value(
            "insert into pgqueue_message (content, task, dequeue_at) values (%s, %s, 0) returning id",
            '{"args": [], "kwargs": {}}',
            task,
        )
    )


def park(session: Session, task: str) -> int:
    """The id of a message that another worker has parked."""
    with session.connection.transaction():
        message_id = create(session, task)
        with session.connection.cursor() as cursor:
            cursor.execute(PARK, {"id": message_id})
    return message_id


def id_of(worker: Any) -> str:
    found: str = worker.output.partition("started worker=")[2].split()[0]
    return found


class TestALostConnection:
    def test_it_listens_again_and_looks(self, consume: Consume, session: Session) -> None:
        consumer = resting(consume)
        pid = consumer.session.connection.info.backend_pid
        session.rows("select pg_terminate_backend(%s)", pid)
        wait_until(lambda: consumer.session.connection.info.backend_pid != pid, "it has a new connection")
        wait_until(lambda: rests(consumer), "it rests again")
        ended(jobs.which_session.enqueue())


@pytest.mark.slow
def test_a_silently_lost_connection_is_found_by_keepalives(start: Start, session: Session) -> None:
    """Its next look is ten minutes away, and no notification would reach it."""
    at = urlsplit(url())
    if at.hostname is None:
        pytest.skip("needs a server that is reached by TCP")
    proxy = Proxy(at.port or 5432)
    through = at._replace(netloc=f"{at.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}").geturl()
    worker = start(options={"IDLE_POLL_SECONDS": LONG}, DATABASE_URL=through)
    row = "select count(*) from pgqueue_worker where silent_until is not null"
    wait_until(lambda: session.value(row), "it has announced its rest")
    ended(nothing.enqueue())
    wait_until(lambda: session.value(row), "it rests again")
    try:
        proxy.vanish()
    except PermissionError:
        pytest.skip("needs CAP_NET_ADMIN")
    wait_until(lambda: "reconnected worker=" in worker.output, "it has found that the connection is gone", 60)
    ended(nothing.enqueue())
    assert worker.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(IDLE_SECONDS + 300)
@pytest.mark.parametrize("listen", [True, False])
def test_a_resting_worker_sends_no_statement(start: Start, session: Session, diary: Diary, listen: bool) -> None:
    """Neither process runs a statement, from the end of the last job to the next."""
    log = ServerLog(session)
    session.rows(f"alter database {session.value('select current_database()')} set log_statement = 'all'")
    try:
        options = {"IDLE_POLL_SECONDS": LONG, "LISTEN": listen}
        worker = start("--processes", "2", "--metrics-port", "0", options=options)
        ended(write.enqueue("before"))
        row = "select count(*) from pgqueue_worker where silent_until is not null"
        wait_until(lambda: session.value(row) == 2, "both have announced their rest")
        wait_until(log.is_at_rest, "both rest", 60)
        before, began = log.size(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        said = log.statements(since=before)
        seconds = time.monotonic() - began
        print(f"\n{len(said)} statements in {seconds:.0f} idle seconds of 2 processes, LISTEN {listen}: {said}")
        assert said == []
        if listen:  # without it they look in ten minutes
            assert ended(nothing.enqueue()).is_finished
        assert worker.stop() == 0
    finally:
        session.rows(f"alter database {session.value('select current_database()')} reset log_statement")


class ServerLog:
    """The log of the tests' server, if it writes one on this machine."""

    def __init__(self, session: Session) -> None:
        folder = Path(session.value("show data_directory"))
        try:
            pid = (folder / "postmaster.pid").read_text().split()[0]
            self.file = Path(f"/proc/{pid}/fd/2").readlink()
        except OSError:
            pytest.skip("the log of the server is not here")
        if not self.file.is_file():
            pytest.skip("the server logs to no file")
        self._last = (0, 0.0)

    def size(self) -> int:
        return self.file.stat().st_size

    def is_at_rest(self) -> bool:
        """Whether nothing was logged for ten seconds."""
        size, now = self.size(), time.monotonic()
        if size != self._last[0]:
            self._last = (size, now)
        return now - self._last[1] > 10

    def statements(self, *, since: int) -> list[str]:
        with self.file.open("rb") as file:
            file.seek(since)
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if " statement: " in line or " execute " in line or " parse " in line]
