"""Schedules: declared in code or made by hand, fired by all workers and by none twice."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from psycopg.types.json import Jsonb

from django_pgqueue import checks, control, functions
from django_pgqueue.consumer.connection import connect
from django_pgqueue.exceptions import ChannelFull, DuplicateMessage, InvalidSchedule
from django_pgqueue.models import Message, Schedule
from django_pgqueue.tasks import cron, every, registry, task
from django_pgqueue.tasks.schedule import MAX_SLOTS
from django_pgqueue.values.times import to_epoch_ms
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from django_pgqueue.worker.upkeep import scheduler as worker_scheduler
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.support.fixtures.workers import rows
from tests.support.scheduled.tasks import SCHEDULES, send
from tests.support.site.tasks import hold
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start
    from tests.support.processes import QWorker

__all__ = ["rows"]  # a fixture that the others need

MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NINE = dt.datetime(2026, 3, 2, 9, 0, tzinfo=dt.UTC)
SETTINGS = "tests.support.scheduled.settings"


class Queue:
    """The queue at a time that the test says, by one session with the worker's own kind of connection."""

    def __init__(self) -> None:
        self.connection = connect("default")
        self.at = NINE
        self.scheduler = Scheduler("default")

    def move_to(self, at: dt.datetime) -> None:
        self.at = at
        self.connection.execute("select set_config('pgqueue.now', %s, false)", (str(to_epoch_ms(at)),))

    def look(self, by: Scheduler | None = None, *, declare: bool = False) -> list[Message]:
        """One look of a worker, and the messages that are new."""
        scheduler = by or self.scheduler
        scheduler.next_look = 0.0
        scheduler.next_declare = 0.0 if declare else scheduler.next_declare
        before = set(Message.objects.values_list("pk", flat=True))
        fired = scheduler.look_if_due(self.connection)
        new = list(Message.objects.exclude(pk__in=before).order_by("pk"))
        assert fired == bool(new)
        return new

    def worker(self, name: str | None) -> Scheduler:
        """The scheduler of a worker that is alive now.  None: nobody knows whose."""
        scheduler = Scheduler("default", worker=name)
        self.be_seen(scheduler)
        return scheduler

    def be_seen(self, *alive: Scheduler) -> None:
        for one in alive:
            if one.worker is not None:
                functions.worker_seen(
                    self.connection, worker=one.worker, queues=None, exclude_queues=[], hostname="h", pid=1, slots=1,
                    asleep_ms=None,
                )  # fmt: skip

    def slots(self, by: Scheduler | None = None) -> list[dt.datetime]:
        """The same, as the slots of the messages."""
        return [slot_of(message) for message in self.look(by)]


@pytest.fixture
def queue(transactional_db: None) -> Iterator[Queue]:
    queue = Queue()
    queue.move_to(NINE)
    with queue.connection:
        yield queue


@pytest.fixture(autouse=True)
def no_slots(db: None) -> None:
    """The table of the used slots has no model, and so Django does not empty it after a test."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_schedule_slot")
        cursor.execute("delete from pgqueue_schedule_declaration")


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets the project's code: a module with the task ``reports.tasks.make``, which has this schedule."""

    def set_code(schedule: Any = None, **options: Any) -> None:
        def make(word: str = "") -> None: ...

        make.__module__, make.__qualname__ = "reports.tasks", "make"
        module = ModuleType("reports.tasks")
        module.make = task(make, schedule=schedule, **options)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "reports.tasks", module)
        registry.forget()

    yield set_code
    registry.forget()


def by_hand(name: str = "by hand", **columns: Any) -> Schedule:
    """A schedule as somebody writes it into the table."""
    given = {"next_at": NINE, "cron": "0 * * * *", "task": send.module_path, "content": {"args": ["Ada"], "kwargs": {}}}
    return Schedule.objects.create(name=name, **given | columns)


def slot_of(message: Message) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=(message.headers or {})["slot"])


def names(messages: list[Message]) -> list[str]:
    """The schedules that the messages are from."""
    return [(message.headers or {})["schedule"] for message in messages]


def row(name: str = "reports.tasks.make") -> Schedule:
    return Schedule.objects.get(name=name)


# Real workers


def run(start: Start, **schedules: Any) -> QWorker:
    """Starts a worker whose code declares these schedules."""
    variables: dict[str, Any] = {SCHEDULES: json.dumps(schedules)}
    return start(DJANGO_SETTINGS_MODULE=SETTINGS, **variables)


SLOTS_AND_MESSAGES = """
select m.headers ->> 'schedule', (m.headers ->> 'slot')::bigint, count(*)
from (select headers from pgqueue_attempt where final union all select headers from pgqueue_message) m
group by 1, 2 order by 1, 2
"""


def test_two_processes_fire_each_slot_once_and_leave_none_out(start: Start, session: Session, diary: Diary) -> None:
    declared: dict[str, Any] = {
        "quick": {"every_ms": 50, "catch_up": "all"},
        "slow": {"every_ms": 130, "catch_up": "all"},
    }
    workers = [run(start, **declared), run(start, **declared)]
    wait_until(lambda: diary.words().count("quick") > 40, "dozens of jobs have run")
    # Somebody puts a schedule back: these slots have been used.
    session.rows("update pgqueue_schedule set next_at = next_at - 50 * 20 where name = 'quick'")
    seen = diary.words().count("quick")
    wait_until(lambda: diary.words().count("quick") > seen + 20, "it goes on")
    for worker in workers:
        assert worker.stop() == 0

    found = session.rows(SLOTS_AND_MESSAGES)
    assert {count for _, _, count in found} == {1}
    for name, step in (("quick", 50), ("slow", 130)):
        slots = [slot for schedule, slot, _ in found if schedule == name]
        assert slots == list(range(slots[0], slots[-1] + step, step))
        used = session.rows("select slot_at, message_id from pgqueue_schedule_slot where name = %s order by 1", name)
        assert [slot for slot, _ in used] == slots
        assert all(message_id is not None for _, message_id in used)
    assert all("scheduled id=" in worker.output for worker in workers), "each of them has fired some"


def test_a_sleeping_worker_wakes_for_its_schedule_and_forgets_deleted_ones(
    start: Start, session: Session, diary: Diary
) -> None:
    session.rows("insert into pgqueue_schedule_slot (name, slot_at) values ('deleted', 1)")
    run(start, soon={"every_ms": 1500})
    wait_until(lambda: diary.words().count("soon") >= 2, "it has run twice")
    wait_until(
        lambda: session.rows("select distinct name from pgqueue_schedule_slot") == [("soon",)], "they are forgotten"
    )


def test_an_invalid_row_is_paused_and_logged_and_others_go_on(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    bad: dict[str, dict[str, Any]] = {
        "no cron": {"cron": "every day"},
        "no zone": {"cron": "* * * * *", "timezone": "Mars/Olympus"},
        "never": {"cron": "0 0 */30 * 2#3"},
        "too long": {"cron": None, "interval_ms": 2**62},
        "before the calendar": {"next_at": -(2**63)},
    }
    for name, columns in bad.items():
        by_hand(name, **columns)
    by_hand("good")
    assert "good" in names(queue.look())
    paused = set(Schedule.objects.filter(paused_at__isnull=False).values_list("name", flat=True))
    assert paused == {"no cron", "no zone", "never", "too long"}
    for name in paused:
        assert f"schedule name={name} cannot be used and is paused" in caplog.text
    assert caplog.text.count("cannot be used") == 4


def test_a_burst_fires_nothing_and_does_not_spin_while_its_job_runs(
    transactional_db: None, diary: Diary, session: Session
) -> None:
    by_hand(next_at=NINE)
    hold.enqueue("x")
    consumer = WorkerProcess(WorkerSettings(threads=1, burst=True))
    turns, turn = [0], consumer.turn

    def counted() -> None:
        turns[0] += 1
        turn()

    consumer.turn = counted  # type: ignore[method-assign]
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        started(diary, "x")
        attended = consumer.held.next_attention
        wait_until(lambda: consumer.held.next_attention > attended + 1, "it has attended to its job twice")
    finally:
        diary.allow("x-1")
        thread.join(SECONDS)
    wait_until(lambda: not session.strangers(), "the slot is gone")
    assert turns[0] < 100
    assert not Message.objects.exists()
    assert row("by hand").next_at == NINE


# What a schedule enqueues


def test_a_slot_becomes_a_message_with_the_values_of_the_schedule(queue: Queue) -> None:
    by_hand(queue="mail", priority=7, max_attempts=3, content={"args": ["Ada"], "kwargs": {"polite": False}})
    [message] = queue.look()
    assert (message.task, message.queue, message.priority, message.max_attempts) == (send.module_path, "mail", 7, 3)
    assert message.content == {"args": ["Ada"], "kwargs": {"polite": False}}
    assert message.headers == {"schedule": "by hand", "slot": to_epoch_ms(NINE)}
    assert message.dequeue_at == message.created_at == NINE
    assert row("by hand").next_at == NINE + HOUR
    assert queue.look() == []


def test_nothing_is_enqueued_before_its_time_and_everything_at_its_time(queue: Queue) -> None:
    by_hand(next_at=NINE + HOUR)
    queue.move_to(NINE + HOUR - dt.timedelta(milliseconds=1))
    assert queue.look() == []
    queue.move_to(NINE + HOUR)
    assert queue.slots() == [NINE + HOUR]


def test_a_schedule_follows_its_time_zone_over_the_change_of_clocks(queue: Queue) -> None:
    by_hand(next_at=dt.datetime(2026, 3, 28, 1, 30, tzinfo=dt.UTC), cron="30 2 * * *", timezone="Europe/Berlin")
    found = []
    for day in range(28, 32):
        queue.move_to(dt.datetime(2026, 3, day, 6, 0, tzinfo=dt.UTC))
        found += queue.slots()
    assert [f"{slot:%d %H:%M}" for slot in found] == ["28 01:30", "29 01:00", "30 00:30", "31 00:30"]


def test_a_schedule_locked_by_another_session_is_left_to_it(queue: Queue, session: Session) -> None:
    by_hand()
    with session.connection.transaction():
        session.rows("select from pgqueue_schedule for update")
        assert queue.look() == []
        assert queue.scheduler.next_look > 0
    assert queue.slots() == [NINE]


def test_a_worker_that_could_not_fire_does_not_retry_at_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand()
    monkeypatch.setattr("django_pgqueue.worker.upkeep.scheduler.time.monotonic", lambda: 100.0)
    queue.look()
    assert queue.scheduler.next_look == 100.0 + worker_scheduler.LOOK_AGAIN_SECONDS
    queue.look()
    assert queue.scheduler.next_look == 100.0 + worker_scheduler.LOOK_EVERY_SECONDS
    queue.move_to(NINE + HOUR - dt.timedelta(seconds=3))
    queue.look()
    assert queue.scheduler.next_look == 103.0


# Pausing and resuming


def test_a_paused_schedule_waits_and_a_pause_is_not_an_outage(queue: Queue) -> None:
    """What passed meanwhile was not missed: somebody did not want it."""
    by_hand(catch_up="all")
    assert control.pause_schedule("by hand")
    assert not control.pause_schedule("by hand")
    queue.move_to(NINE + 5 * HOUR + MINUTE)
    assert queue.look() == []
    Schedule.objects.update(cron="30 * * * *")
    assert resume_at(queue, "by hand")
    assert not resume_at(queue, "by hand")
    assert queue.look() == []
    assert row("by hand").next_at == NINE + 5 * HOUR + 30 * MINUTE


def resume_at(queue: Queue, name: str) -> bool:
    """Resumes by the queue's clock of the test."""
    from django_pgqueue.testing import clock

    with clock(queue.at):
        return control.resume_schedule(name)


def test_resumed_before_the_next_slot_it_loses_nothing(queue: Queue) -> None:
    by_hand(next_at=NINE + HOUR)
    control.pause_schedule("by hand")
    queue.move_to(NINE + 10 * MINUTE)
    resume_at(queue, "by hand")
    assert row("by hand").next_at == NINE + HOUR


def test_a_schedule_can_be_run_now_beside_its_slots(queue: Queue) -> None:
    by_hand(next_at=NINE + HOUR, queue="mail")
    message = Message.objects.get(pk=control.run_schedule("by hand"))
    assert (message.task, message.queue, message.headers) == (send.module_path, "mail", {"schedule": "by hand"})
    assert row("by hand").next_at == NINE + HOUR
    queue.move_to(NINE + HOUR)
    assert queue.slots() == [NINE + HOUR]


@pytest.mark.parametrize("act", [control.pause_schedule, control.resume_schedule, control.run_schedule])
def test_a_schedule_that_is_not_there_is_named(act: Callable[[str], Any], db: None) -> None:
    with pytest.raises(InvalidSchedule, match="There is no schedule 'reports'"):
        act("reports")


# Declared in code


def test_a_declared_schedule_appears_with_its_next_slot(queue: Queue, declare: Callable[..., None]) -> None:
    declare(
        cron("30 2 * * *", timezone="Europe/Berlin", args=["x"], catch_up="skip"),
        queue_name="default", priority=9, max_attempts=4,
    )  # fmt: skip
    assert queue.look() == []
    made = row()
    assert (made.task, made.cron, made.timezone, made.catch_up) == (
        "reports.tasks.make", "30 2 * * *", "Europe/Berlin", "skip",
    )  # fmt: skip
    assert (made.queue, made.priority, made.max_attempts, made.declared) == ("default", 9, 4, True)
    assert made.content == {"args": ["x"], "kwargs": {}}
    assert made.next_at == dt.datetime(2026, 3, 3, 1, 30, tzinfo=dt.UTC)


def test_several_schedules_of_one_task_have_names_of_their_own(queue: Queue, declare: Callable[..., None]) -> None:
    declare((every(HOUR), every(DAY, name="daily", args=["x"]), every(MINUTE)))
    queue.look()
    found = set(Schedule.objects.values_list("name", flat=True))
    assert found == {"reports.tasks.make#1", "daily", "reports.tasks.make#3"}


def test_with_the_code_the_schedule_changes(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR))
    queue.look()
    queue.move_to(NINE + 10 * MINUTE)

    declare(every(HOUR, args=["new"]), priority=3)
    queue.look(Scheduler("default"))
    assert (row().content["args"], row().priority, row().next_at) == (["new"], 3, NINE + HOUR)

    declare(every(15 * MINUTE))
    queue.look(Scheduler("default"))
    assert row().next_at == NINE + 15 * MINUTE, "another rule has another next slot"


def test_a_schedule_removed_from_the_code_stops_until_it_is_declared_again(
    queue: Queue, declare: Callable[..., None]
) -> None:
    declare(every(HOUR))
    queue.look()
    declare(None)
    after = Scheduler("default")
    queue.move_to(NINE + 3 * HOUR)
    assert queue.look(after) == []
    assert row().next_at == NINE + HOUR
    declare(every(HOUR))
    assert queue.slots(Scheduler("default")) == [NINE + 3 * HOUR], "one job for the time in between"


def test_old_and_new_workers_side_by_side_fire_what_each_of_them_declares(
    queue: Queue, declare: Callable[..., None]
) -> None:
    declare((every(HOUR, name="leaving"), every(HOUR, name="staying")))
    old = queue.scheduler
    queue.look(old)
    declare((every(HOUR, name="staying"), every(HOUR, name="coming")))
    new = Scheduler("default")
    queue.look(new)
    queue.look(old, declare=True)

    queue.move_to(NINE + HOUR)
    by_new = names(queue.look(new))
    by_old = names(queue.look(old))
    assert (by_new, by_old) == (["coming", "staying"], ["leaving"])


# Versions that disagree


@pytest.mark.parametrize("named", [True, False], ids=["known workers", "unknown workers"])
@pytest.mark.parametrize("order", ["old first", "new first", "in turn"])
@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_two_versions_side_by_side_leave_no_slot_out(
    queue: Queue, declare: Callable[..., None], order: str, catch_up: str, named: bool
) -> None:
    """The same slots, by other words: each version declares its own every minute."""
    declare(every(MINUTE, catch_up=catch_up))
    queue.look(old := queue.worker("old" if named else None))
    declare(cron("* * * * *", timezone="UTC", catch_up=catch_up))
    queue.look(new := queue.worker("new" if named else None))
    slots = []
    for minute in range(1, 61):
        queue.move_to(NINE + minute * MINUTE)
        queue.be_seen(old, new)
        turn = [old, new] if order == "old first" or (order == "in turn" and minute % 2) else [new, old]
        slots += [slot_of(message) for by in turn for message in queue.look(by, declare=True)]
    assert slots == [NINE + minute * MINUTE for minute in range(1, 61)]


@pytest.mark.parametrize(("catch_up", "hours"), [("all", [10, 11, 12]), ("one", [12]), ("skip", [12])], ids=str)
def test_slots_due_by_the_old_rule_are_fired_before_it_changes(
    queue: Queue, declare: Callable[..., None], catch_up: str, hours: list[int]
) -> None:
    declare(every(HOUR, catch_up=catch_up))
    queue.look()
    queue.move_to(NINE + 3 * HOUR)
    declare(every(25 * MINUTE, args=["new"], catch_up="one"))
    after = Scheduler("default")
    fired = queue.look(after)
    assert [slot_of(message).hour for message in fired] == hours
    assert {message.content["args"][0] for message in fired} == {"new"}, (
        "the arguments are those of the code that is there"
    )
    assert (row().interval_ms, row().catch_up) == (1_500_000, "one")
    assert row().next_at == every(25 * MINUTE).rule.first_after(queue.at)


def test_a_rule_changes_when_all_that_was_missed_has_been_caught_up_with(
    queue: Queue, declare: Callable[..., None]
) -> None:
    declare(every(dt.timedelta(seconds=1), catch_up="all"))
    queue.look()
    queue.move_to(NINE + dt.timedelta(seconds=2 * MAX_SLOTS + 5))
    declare(every(HOUR))
    after = Scheduler("default")
    assert [len(queue.look(after)) for _ in range(4)] == [MAX_SLOTS, MAX_SLOTS, 5, 0]
    assert (row().interval_ms, row().next_at) == (3_600_000, NINE + HOUR)


def test_a_rule_that_is_due_all_the_time_can_be_changed(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(dt.timedelta(milliseconds=10)))
    queue.look()
    queue.move_to(NINE + MINUTE)
    declare(every(HOUR))
    assert len(queue.look(Scheduler("default"))) == 1
    assert row().interval_ms == 3_600_000


def test_a_slot_locked_by_another_session_keeps_its_rule_until_it_is_fired(
    queue: Queue, declare: Callable[..., None], session: Session
) -> None:
    declare(every(HOUR))
    queue.look()
    queue.move_to(NINE + HOUR)
    declare(every(7 * MINUTE))
    after = Scheduler("default")
    with session.connection.transaction():
        session.rows("select from pgqueue_schedule for update")
        queue.connection.execute("set lock_timeout = '20ms'")
        assert queue.look(after) == []
    assert row().interval_ms == 3_600_000
    assert [slot_of(message) for message in queue.look(after, declare=True)] == [NINE + HOUR]
    assert row().interval_ms == 420_000


def test_a_paused_schedule_has_nothing_due_and_changes_at_once(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR, catch_up="all"))
    queue.look()
    control.pause_schedule("reports.tasks.make")
    queue.move_to(NINE + 3 * HOUR)
    declare(every(MINUTE))
    assert queue.look(Scheduler("default")) == []
    assert row().interval_ms == 60_000


def test_the_version_that_was_there_first_counts_until_its_last_worker_has_left(
    queue: Queue, declare: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """A rolling deploy: nothing flips, whoever comes, goes, or starts again."""
    caplog.set_level(logging.INFO, "django_pgqueue.worker")
    declare(every(HOUR))
    first, second = queue.worker("first"), queue.worker("second")
    queue.look(first)
    queue.look(second)
    declare(every(MINUTE))
    third = queue.worker("third")
    for by in (third, first, second, third):
        queue.look(by, declare=True)
        assert row().interval_ms == 3_600_000
    assert "schedule name=reports.tasks.make is declared differently by other workers" in caplog.text
    first.leave(queue.connection)
    queue.look(third)
    assert row().interval_ms == 3_600_000, "one of them is still there"
    queue.look(second, declare=True)
    functions.worker_gone(queue.connection, "second")
    queue.look(third)
    assert row().interval_ms == 60_000, "with the next look, not in a minute"

    declare(every(HOUR))
    queue.look(queue.worker("rolled back"))
    assert row().interval_ms == 60_000, "the way back is the same"
    third.leave(queue.connection)
    queue.look(queue.worker("another of the old code"))
    assert row().interval_ms == 3_600_000


def test_the_declaration_of_a_dead_worker_expires_after_a_minute(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR))
    queue.look(queue.worker("killed"))
    declare(every(5 * MINUTE))
    new = queue.worker("new")
    queue.look(new)
    queue.move_to(NINE + 59 * dt.timedelta(seconds=1))
    queue.look(new)
    assert row().interval_ms == 3_600_000
    queue.move_to(NINE + 61 * dt.timedelta(seconds=1))
    queue.look(new)
    assert row().interval_ms == 300_000


def test_a_schedule_changed_by_hand_is_restored_by_any_worker(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR))
    queue.look(one := queue.worker("one"))
    queue.look(queue.worker("another"))
    Schedule.objects.update(interval_ms=5, next_at=NINE + DAY)
    queue.look(one, declare=True)
    assert (row().interval_ms, row().next_at) == (3_600_000, NINE + HOUR)


def test_a_worker_with_another_name_declares_once_more(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR))
    queue.look(old := queue.worker("before"))
    queue.worker("after")
    functions.worker_gone(queue.connection, "before")
    old.renamed("after")
    queue.look(old)
    declare(every(MINUTE))
    queue.look(queue.worker("new"))
    assert row().interval_ms == 3_600_000


def test_a_deleted_schedule_returns_while_the_code_declares_it(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR))
    queue.look()
    Schedule.objects.all().delete()
    queue.look(declare=True)
    assert row().next_at == NINE + HOUR


def test_two_tasks_that_declare_one_name_are_logged(
    queue: Queue, declare: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    declare(every(HOUR, name="nightly"))

    def other() -> None: ...

    other.__module__, other.__qualname__ = "zoo.tasks", "other"
    module = ModuleType("zoo.tasks")
    module.other = task(other, schedule=every(DAY, name="nightly"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zoo.tasks", module)
    with caplog.at_level(logging.ERROR, "django_pgqueue.worker"):
        queue.look()
    assert row("nightly").task == "reports.tasks.make"
    assert "name=nightly is declared by reports.tasks.make and by zoo.tasks.other" in caplog.text


def test_a_copy_made_by_using_is_not_a_second_declaration(
    queue: Queue, declare: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(every(HOUR), priority=1)
    module = sys.modules["reports.tasks"]
    module.urgent = module.make.using(priority=100)  # type: ignore[attr-defined]
    elsewhere = ModuleType("zoo.tasks")
    elsewhere.make = module.urgent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zoo.tasks", elsewhere)
    queue.look()
    assert row().priority == 1


def test_a_declaration_that_cannot_be_stored_is_logged_and_stops_no_other(
    queue: Queue, declare: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    declare((every(HOUR, args=["x" * 2_000_000], name="large"), every(HOUR, name="small")))
    by_hand()
    with caplog.at_level(logging.ERROR, "django_pgqueue.worker"):
        assert queue.slots() == [NINE]
    assert "schedule name=large cannot be declared: its call has 2,000,0" in caplog.text
    assert list(Schedule.objects.filter(declared=True).values_list("name", flat=True)) == ["small"]


def test_invalid_content_of_a_schedule_fails_only_its_message(queue: Queue, session: Session) -> None:
    """Whatever stands there: the job fails with the reason, the worker does not."""
    by_hand()
    session.rows("update pgqueue_schedule set content = %s", Jsonb({"args": 5}))
    assert [message.content for message in queue.look()] == [{"args": 5}]


# Unique keys


def test_a_task_with_a_key_is_enqueued_once_while_its_key_is_held(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR, args=["a"]), unique_key=True)
    queue.look()
    queue.move_to(NINE + HOUR)
    [message] = queue.look()
    module = sys.modules["reports.tasks"]
    assert module.make.enqueue("a").id == str(message.pk), "it is the key of an enqueue"
    queue.move_to(NINE + 2 * HOUR)
    assert queue.look() == []
    assert row().next_at == NINE + 3 * HOUR, "the slot counts as used"
    assert control.cancel(message.pk) == "cancelled"
    queue.move_to(NINE + 3 * HOUR)
    assert len(queue.look()) == 1


def test_the_key_and_the_policy_are_those_of_the_task(queue: Queue, declare: Callable[..., None]) -> None:
    declare(
        every(HOUR, args=["a"]), unique_key=lambda word: f"key {word}", on_conflict="replace", unique_until="started"
    )
    queue.look()
    module = sys.modules["reports.tasks"]
    other = module.make.using(run_after=DAY, priority=50).enqueue("a")
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    message = Message.objects.get(pk=other.id)
    assert (message.unique_key, message.unique_until_started) == ("reports.tasks.make:key a", True)
    assert (message.dequeue_at, message.priority) == (NINE + HOUR, 0)
    assert names([message]) == ["reports.tasks.make"]


def test_on_conflict_raise_works_as_keep_in_a_schedule(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR), unique_key="k", on_conflict="raise")
    queue.look()
    queue.move_to(NINE + HOUR)
    assert len(queue.look()) == 1
    queue.move_to(NINE + 2 * HOUR)
    assert queue.look() == []
    assert row().next_at == NINE + 3 * HOUR
    with pytest.raises(DuplicateMessage) as refused:
        control.run_schedule("reports.tasks.make")
    assert refused.value.existing_id == Message.objects.get().pk


def test_run_now_is_an_enqueue_with_the_key(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR), unique_key="k")
    queue.look()
    message_id = control.run_schedule("reports.tasks.make")
    assert control.run_schedule("reports.tasks.make") == message_id
    assert Message.objects.get().unique_key == "reports.tasks.make:k"


def test_its_messages_are_in_the_channel_of_the_task(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR), channel="acme")
    queue.look()
    queue.move_to(NINE + HOUR)
    queue.look()
    control.run_schedule("reports.tasks.make")
    assert list(Message.objects.values_list("channel", flat=True)) == ["acme", "acme"]


def test_a_full_channel_uses_the_slot_and_makes_run_now_an_error(queue: Queue, declare: Callable[..., None]) -> None:
    declare(every(HOUR), channel="acme")
    queue.look()
    control.set_channel("acme", max_size=0)
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    assert Schedule.objects.get().next_at == NINE + 2 * HOUR
    with pytest.raises(ChannelFull, match=r"The message of schedule 'reports.tasks.make' was not enqueued"):
        control.run_schedule("reports.tasks.make")


def test_a_schedule_made_by_hand_has_the_key_of_its_task_too(queue: Queue, declare: Callable[..., None]) -> None:
    declare(unique_key=True)
    by_hand(task="reports.tasks.make")
    by_hand("another", task="reports.tasks.make")
    assert len(queue.look()) == 1, "two schedules, and the same call"
    assert set(Schedule.objects.values_list("next_at", flat=True)) == {NINE + HOUR}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (
            lambda word: word.nothing,
            "unique_key or the channel of reports.tasks.make cannot be computed: AttributeError",
        ),
        (lambda _: 7, "unique_key of reports.tasks.make is 7"),
    ],
)
def test_a_key_that_cannot_be_made_pauses_the_schedule_with_a_log_line(
    queue: Queue, declare: Callable[..., None], caplog: pytest.LogCaptureFixture, key: Any, says: str
) -> None:
    declare(every(HOUR, args=["a"]), unique_key=key)
    queue.look()
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    assert row().paused_at is not None
    assert says in caplog.text


# Names


def test_two_declarations_of_one_name_are_an_error_that_names_both(
    declare: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare((every(HOUR, name="nightly"), every(DAY), every(MINUTE, name="own")))
    assert checks.check_schedules(None) == []

    def send_all() -> None: ...

    send_all.__module__, send_all.__qualname__ = "letters.tasks", "send_all"
    module = ModuleType("letters.tasks")
    module.send_all = task(send_all, schedule=cron("0 2 * * *", name="nightly"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "letters.tasks", module)
    [error] = checks.check_schedules(None)
    assert error.id == "pgqueue.E008"
    assert "'nightly' is declared 2 times, by letters.tasks.send_all and by reports.tasks.make" in error.msg
    assert "name=" in (error.hint or "")


def test_a_task_module_that_cannot_be_imported_does_not_stop_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise SyntaxError

    monkeypatch.setattr(registry, "autodiscover", broken)
    assert checks.check_schedules(None) == []
