"""Schedules: declared in code or made by hand, fired by all workers and by none twice."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import threading
import time
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
MAKE = "reports.tasks.make"
"""The task of the code that ``Queue.declare`` sets."""


class Queue:
    """The queue at a time that the test says, by one session with the worker's own kind of connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.connection = connect("default")
        self.at = NINE
        self.scheduler = Scheduler("default")

    def declare(self, schedule: Any = None, *, path: str = MAKE, **options: Any) -> None:
        """Sets the project's code: a module with this task, which has this schedule."""

        def make(word: str = "") -> None: ...

        make.__module__, _, make.__qualname__ = path.rpartition(".")
        module = ModuleType(make.__module__)
        setattr(module, make.__qualname__, task(make, schedule=schedule, **options))
        self.monkeypatch.setitem(sys.modules, make.__module__, module)
        registry.forget()

    def deploy(self, schedule: Any = None, *, by: Scheduler | None = None, **options: Any) -> list[Message]:
        """The first look of a worker with this code."""
        self.declare(schedule, **options)
        self.scheduler = by or Scheduler("default")
        return self.look()

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


@pytest.fixture
def queue(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    queue = Queue(monkeypatch)
    queue.move_to(NINE)
    with queue.connection:
        yield queue
    registry.forget()


@pytest.fixture(autouse=True)
def no_slots(db: None) -> None:
    """The table of the used slots has no model, and so Django does not empty it after a test."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_schedule_slot")
        cursor.execute("delete from pgqueue_schedule_declaration")


def by_hand(name: str = "by hand", **columns: Any) -> Schedule:
    """A schedule as somebody writes it into the table."""
    given = {"next_at": NINE, "cron": "0 * * * *", "task": send.module_path, "content": {"args": ["Ada"], "kwargs": {}}}
    return Schedule.objects.create(name=name, **given | columns)


def slots(messages: list[Message]) -> list[dt.datetime]:
    return [EPOCH + dt.timedelta(milliseconds=(message.headers or {})["slot"]) for message in messages]


def names(messages: list[Message]) -> list[str]:
    """The schedules that the messages are from."""
    return [(message.headers or {})["schedule"] for message in messages]


def row(name: str = MAKE) -> Schedule:
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


def test_nothing_is_enqueued_before_its_time_and_everything_at_its_time(queue: Queue) -> None:
    by_hand(next_at=NINE + HOUR)
    queue.move_to(NINE + HOUR - dt.timedelta(milliseconds=1))
    assert queue.look() == []
    queue.move_to(NINE + HOUR)
    assert slots(queue.look()) == [NINE + HOUR]


def test_a_schedule_locked_by_another_session_is_left_to_it(queue: Queue, session: Session) -> None:
    by_hand()
    with session.connection.transaction():
        session.rows("select from pgqueue_schedule for update")
        assert queue.look() == []
        assert queue.scheduler.next_look > 0
    assert slots(queue.look()) == [NINE]


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


def test_of_many_that_are_due_a_look_fires_some_and_the_next_look_follows_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims and ends wait for a look."""
    monkeypatch.setattr(worker_scheduler, "MAX_FIRED", 2)
    monkeypatch.setattr(worker_scheduler, "LOOK_AGAIN_SECONDS", 1000.0)
    for number in range(5):
        by_hand(f"number {number}", next_at=NINE - number * MINUTE)
    looks = []
    while new := queue.look():
        looks.append(names(new))
        assert len(looks) == 3 or queue.scheduler.next_look <= time.monotonic()
    assert looks == [["number 4", "number 3"], ["number 2", "number 1"], ["number 0"]]
    assert queue.scheduler.next_look > time.monotonic()


def test_schedules_that_another_session_has_locked_keep_no_others_waiting(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_scheduler, "MAX_FIRED", 2)
    for number in range(6):
        by_hand(f"number {number}", next_at=NINE + number * MINUTE)
    queue.move_to(NINE + HOUR)
    with connect("default") as other, other.transaction():
        other.execute("select from pgqueue_schedule where name <> 'number 5' for update")
        looks = [names(queue.look()) for _ in range(3)]
        assert looks == [[], [], ["number 5"]]
        assert queue.scheduler.next_look > time.monotonic(), "a look that fires nothing has a pause behind it"
    assert len([name for _ in range(4) for name in names(queue.look())]) == 5


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


def test_resumed_it_does_not_wait_for_a_time_that_a_wrong_clock_has_set(queue: Queue) -> None:
    by_hand()
    queue.move_to(NINE + dt.timedelta(days=365))
    queue.look()
    queue.move_to(NINE + 10 * MINUTE)
    control.pause_schedule("by hand")
    resume_at(queue, "by hand")
    assert row("by hand").next_at == NINE + HOUR


def test_resumed_before_it_has_ever_run_it_keeps_its_begin(queue: Queue) -> None:
    by_hand(next_at=NINE + dt.timedelta(days=365))
    control.pause_schedule("by hand")
    resume_at(queue, "by hand")
    assert row("by hand").next_at == NINE + dt.timedelta(days=365)


def test_a_schedule_can_be_run_now_beside_its_slots(queue: Queue) -> None:
    by_hand(next_at=NINE + HOUR, queue="mail")
    message = Message.objects.get(pk=control.run_schedule("by hand"))
    assert (message.task, message.queue, message.headers) == (send.module_path, "mail", {"schedule": "by hand"})
    assert row("by hand").next_at == NINE + HOUR
    queue.move_to(NINE + HOUR)
    assert slots(queue.look()) == [NINE + HOUR]


@pytest.mark.parametrize("act", [control.pause_schedule, control.resume_schedule, control.run_schedule])
def test_a_schedule_that_is_not_there_is_named(act: Callable[[str], Any], db: None) -> None:
    with pytest.raises(InvalidSchedule, match="There is no schedule 'reports'"):
        act("reports")


# Declared in code


def test_a_declared_schedule_appears_with_its_next_slot(queue: Queue) -> None:
    queue.declare(
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


def test_several_schedules_of_one_task_have_names_of_their_own(queue: Queue) -> None:
    queue.deploy((every(HOUR), every(DAY, name="daily", args=["x"]), every(MINUTE)))
    found = set(Schedule.objects.values_list("name", flat=True))
    assert found == {"reports.tasks.make#1", "daily", "reports.tasks.make#3"}


def test_with_the_code_the_schedule_changes(queue: Queue) -> None:
    queue.deploy(every(HOUR))
    queue.move_to(NINE + 10 * MINUTE)

    queue.deploy(every(HOUR, args=["new"]), priority=3)
    assert (row().content["args"], row().priority, row().next_at) == (["new"], 3, NINE + HOUR)

    queue.deploy(every(15 * MINUTE))
    assert row().next_at == NINE + 15 * MINUTE, "another rule has another next slot"


def test_a_schedule_removed_from_the_code_stops_until_it_is_declared_again(queue: Queue) -> None:
    queue.deploy(every(HOUR))
    queue.move_to(NINE + 3 * HOUR)
    assert queue.deploy(None) == []
    assert row().next_at == NINE + HOUR
    assert slots(queue.deploy(every(HOUR))) == [NINE + 3 * HOUR], "one job for the time in between"


def test_old_and_new_workers_side_by_side_fire_what_each_of_them_declares(queue: Queue) -> None:
    old, new = Scheduler("default"), Scheduler("default")
    queue.deploy((every(HOUR, name="leaving"), every(HOUR, name="staying")), by=old)
    queue.deploy((every(HOUR, name="staying"), every(HOUR, name="coming")), by=new)
    queue.look(old, declare=True)

    queue.move_to(NINE + HOUR)
    by_new, by_old = names(queue.look(new)), names(queue.look(old))
    assert (by_new, by_old) == (["coming", "staying"], ["leaving"])


# Versions that disagree


@pytest.mark.parametrize("named", [True, False], ids=["known workers", "unknown workers"])
@pytest.mark.parametrize("order", ["old first", "new first", "in turn"])
@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_two_versions_side_by_side_leave_no_slot_out(queue: Queue, order: str, catch_up: str, named: bool) -> None:
    """The same slots, by other words: each version declares its own every minute."""
    old, new = (queue.worker(name if named else None) for name in ("old", "new"))
    queue.deploy(every(MINUTE, catch_up=catch_up), by=old)
    queue.deploy(cron("* * * * *", timezone="UTC", catch_up=catch_up), by=new)
    found = []
    for minute in range(1, 61):
        queue.move_to(NINE + minute * MINUTE)
        queue.be_seen(old, new)
        turn = [old, new] if order == "old first" or (order == "in turn" and minute % 2) else [new, old]
        found += [message for by in turn for message in queue.look(by, declare=True)]
    assert slots(found) == [NINE + minute * MINUTE for minute in range(1, 61)]


@pytest.mark.parametrize(("catch_up", "hours"), [("all", [10, 11, 12]), ("one", [12]), ("skip", [12])], ids=str)
def test_slots_due_by_the_old_rule_are_fired_before_it_changes(queue: Queue, catch_up: str, hours: list[int]) -> None:
    queue.deploy(every(HOUR, catch_up=catch_up))
    queue.move_to(NINE + 3 * HOUR)
    fired = queue.deploy(every(25 * MINUTE, args=["new"], catch_up="one"))
    assert [slot.hour for slot in slots(fired)] == hours
    arguments = {message.content["args"][0] for message in fired}
    assert arguments == {"new"}, "the arguments are those of the code that is there"
    assert (row().interval_ms, row().catch_up) == (1_500_000, "one")
    assert row().next_at == every(25 * MINUTE).rule.first_after(queue.at)


def test_a_rule_changes_when_all_that_was_missed_has_been_caught_up_with(queue: Queue) -> None:
    queue.deploy(every(dt.timedelta(seconds=1), catch_up="all"))
    queue.move_to(NINE + dt.timedelta(seconds=2 * MAX_SLOTS + 5))
    assert len(queue.deploy(every(HOUR))) == MAX_SLOTS
    assert [len(queue.look()) for _ in range(3)] == [MAX_SLOTS, 5, 0]
    assert (row().interval_ms, row().next_at) == (3_600_000, NINE + HOUR)


def test_a_slot_locked_by_another_session_keeps_its_rule_until_it_is_fired(queue: Queue, session: Session) -> None:
    queue.deploy(every(HOUR))
    queue.move_to(NINE + HOUR)
    with session.connection.transaction():
        session.rows("select from pgqueue_schedule for update")
        queue.connection.execute("set lock_timeout = '20ms'")
        assert queue.deploy(every(7 * MINUTE)) == []
    assert row().interval_ms == 3_600_000
    assert slots(queue.look(declare=True)) == [NINE + HOUR]
    assert row().interval_ms == 420_000


def test_a_paused_schedule_has_nothing_due_and_changes_at_once(queue: Queue) -> None:
    queue.deploy(every(HOUR, catch_up="all"))
    control.pause_schedule(MAKE)
    queue.move_to(NINE + 3 * HOUR)
    assert queue.deploy(every(MINUTE)) == []
    assert row().interval_ms == 60_000


def test_the_version_that_was_there_first_counts_until_its_last_worker_has_left(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """A rolling deploy: nothing flips, whoever comes, goes, or starts again."""
    caplog.set_level(logging.INFO, "django_pgqueue.worker")
    first, second = queue.worker("first"), queue.worker("second")
    queue.deploy(every(HOUR), by=first)
    queue.look(second)
    queue.declare(every(MINUTE))
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

    queue.deploy(every(HOUR), by=queue.worker("rolled back"))
    assert row().interval_ms == 60_000, "the way back is the same"
    third.leave(queue.connection)
    queue.look(queue.worker("another of the old code"))
    assert row().interval_ms == 3_600_000


def test_the_declaration_of_a_dead_worker_expires_after_a_minute(queue: Queue) -> None:
    queue.deploy(every(HOUR), by=queue.worker("killed"))
    queue.deploy(every(5 * MINUTE), by=queue.worker("new"))
    for seconds, interval_ms in ((59, 3_600_000), (61, 300_000)):
        queue.move_to(NINE + dt.timedelta(seconds=seconds))
        queue.look()
        assert row().interval_ms == interval_ms


def test_a_schedule_changed_by_hand_is_restored_by_any_worker(queue: Queue) -> None:
    queue.deploy(every(HOUR), by=queue.worker("one"))
    queue.look(queue.worker("another"))
    Schedule.objects.update(interval_ms=5, next_at=NINE + DAY)
    queue.look(declare=True)
    assert (row().interval_ms, row().next_at) == (3_600_000, NINE + HOUR)


def test_a_worker_with_another_name_declares_once_more(queue: Queue) -> None:
    old = queue.worker("before")
    queue.deploy(every(HOUR), by=old)
    queue.worker("after")
    functions.worker_gone(queue.connection, "before")
    old.renamed("after")
    queue.look(old)
    queue.deploy(every(MINUTE), by=queue.worker("new"))
    assert row().interval_ms == 3_600_000


def test_a_deleted_schedule_returns_while_the_code_declares_it(queue: Queue) -> None:
    queue.deploy(every(HOUR))
    Schedule.objects.all().delete()
    queue.look(declare=True)
    assert row().next_at == NINE + HOUR


def test_two_tasks_that_declare_one_name_are_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.declare(every(HOUR, name="nightly"))
    queue.declare(every(DAY, name="nightly"), path="zoo.tasks.other")
    with caplog.at_level(logging.ERROR, "django_pgqueue.worker"):
        queue.look()
    assert row("nightly").task == "reports.tasks.make"
    assert "name=nightly is declared by reports.tasks.make and by zoo.tasks.other" in caplog.text


def test_a_copy_made_by_using_is_not_a_second_declaration(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.declare(every(HOUR), priority=1)
    module = sys.modules["reports.tasks"]
    module.urgent = module.make.using(priority=100)  # type: ignore[attr-defined]
    elsewhere = ModuleType("zoo.tasks")
    elsewhere.make = module.urgent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zoo.tasks", elsewhere)
    queue.look()
    assert row().priority == 1


def test_a_declaration_that_cannot_be_stored_is_logged_and_stops_no_other(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.declare((every(HOUR, args=["x" * 2_000_000], name="large"), every(HOUR, name="small")))
    by_hand()
    with caplog.at_level(logging.ERROR, "django_pgqueue.worker"):
        assert slots(queue.look()) == [NINE]
    assert "schedule name=large cannot be declared: its call has 2,000,0" in caplog.text
    assert list(Schedule.objects.filter(declared=True).values_list("name", flat=True)) == ["small"]


def test_invalid_content_of_a_schedule_fails_only_its_message(queue: Queue, session: Session) -> None:
    """Whatever stands there: the job fails with the reason, the worker does not."""
    by_hand()
    session.rows("update pgqueue_schedule set content = %s", Jsonb({"args": 5}))
    assert [message.content for message in queue.look()] == [{"args": 5}]


def test_a_schedule_of_a_task_that_only_newer_workers_have_is_fired(queue: Queue) -> None:
    by_hand(task="reports.tasks.coming")
    assert [message.task for message in queue.look()] == ["reports.tasks.coming"]


# Unique keys


def test_a_task_with_a_key_is_enqueued_once_while_its_key_is_held(queue: Queue) -> None:
    queue.deploy(every(HOUR, args=["a"]), unique_key=True)
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


def test_the_key_and_the_policy_are_those_of_the_task(queue: Queue) -> None:
    queue.deploy(
        every(HOUR, args=["a"]), unique_key=lambda word: f"key {word}", on_conflict="replace", unique_until="started"
    )
    module = sys.modules["reports.tasks"]
    other = module.make.using(run_after=DAY, priority=50).enqueue("a")
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    message = Message.objects.get(pk=other.id)
    assert (message.unique_key, message.unique_until_started) == ("reports.tasks.make:key a", True)
    assert (message.dequeue_at, message.priority) == (NINE + HOUR, 0)
    assert names([message]) == ["reports.tasks.make"]


def test_on_conflict_raise_works_as_keep_in_a_schedule(queue: Queue) -> None:
    queue.deploy(every(HOUR), unique_key="k", on_conflict="raise")
    queue.move_to(NINE + HOUR)
    assert len(queue.look()) == 1
    queue.move_to(NINE + 2 * HOUR)
    assert queue.look() == []
    assert row().next_at == NINE + 3 * HOUR
    with pytest.raises(DuplicateMessage) as refused:
        control.run_schedule(MAKE)
    assert refused.value.existing_id == Message.objects.get().pk


def test_run_now_is_an_enqueue_with_the_key(queue: Queue) -> None:
    queue.deploy(every(HOUR), unique_key="k")
    message_id = control.run_schedule(MAKE)
    assert control.run_schedule(MAKE) == message_id
    assert Message.objects.get().unique_key == "reports.tasks.make:k"


def test_its_messages_are_in_the_channel_of_the_task(queue: Queue) -> None:
    queue.deploy(every(HOUR), channel="acme")
    queue.move_to(NINE + HOUR)
    queue.look()
    control.run_schedule(MAKE)
    assert list(Message.objects.values_list("channel", flat=True)) == ["acme", "acme"]


def test_a_full_channel_uses_the_slot_and_makes_run_now_an_error(queue: Queue) -> None:
    queue.deploy(every(HOUR), channel="acme")
    control.set_channel("acme", max_size=0)
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    assert Schedule.objects.get().next_at == NINE + 2 * HOUR
    with pytest.raises(ChannelFull, match=r"The message of schedule 'reports.tasks.make' was not enqueued"):
        control.run_schedule(MAKE)


def test_a_schedule_made_by_hand_has_the_key_of_its_task_too(queue: Queue) -> None:
    queue.declare(unique_key=True)
    by_hand(task=MAKE)
    by_hand("another", task=MAKE)
    assert len(queue.look()) == 1, "two schedules, and the same call"
    assert set(Schedule.objects.values_list("next_at", flat=True)) == {NINE + HOUR}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (lambda word: word.nothing, "the channel of reports.tasks.make cannot be computed: AttributeError"),
        (lambda _: 7, "unique_key of reports.tasks.make is 7"),
    ],
    ids=["an error", "a number"],
)
def test_a_key_that_cannot_be_made_pauses_the_schedule_with_a_log_line(
    queue: Queue, caplog: pytest.LogCaptureFixture, key: Any, says: str
) -> None:
    queue.deploy(every(HOUR, args=["a"]), unique_key=key)
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    assert row().paused_at is not None
    assert says in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"args": [1]}', 'must be {"args": [...], "kwargs": {...}}'),
        ("5", 'must be {"args": [...], "kwargs": {...}}'),
        (f'{{"args": [{"7" * 5000}], "kwargs": {{}}}}', "Python cannot read the content of the schedule"),
    ],
    ids=["no call", "a number", "digits"],
)
def test_content_that_no_key_can_be_made_of_pauses_the_schedule_with_a_log_line(
    queue: Queue, caplog: pytest.LogCaptureFixture, content: str, says: str
) -> None:
    queue.deploy(every(HOUR), unique_key=True)
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue_schedule set content = %s::jsonb", (content,))
    queue.move_to(NINE + HOUR)
    assert queue.look() == []
    assert Schedule.objects.exclude(paused_at=None).count() == 1
    assert says in caplog.text


# Names


def test_two_declarations_of_one_name_are_an_error_that_names_both(queue: Queue) -> None:
    queue.declare((every(HOUR, name="nightly"), every(DAY), every(MINUTE, name="own")))
    assert checks.check_schedules(None) == []
    queue.declare(cron("0 2 * * *", name="nightly"), path="letters.tasks.send_all")
    [error] = checks.check_schedules(None)
    assert error.id == "pgqueue.E008"
    assert "'nightly' is declared 2 times, by letters.tasks.send_all and by reports.tasks.make" in error.msg
    assert "name=" in (error.hint or "")


def test_a_task_module_that_cannot_be_imported_does_not_stop_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise SyntaxError

    monkeypatch.setattr(registry, "autodiscover", broken)
    assert checks.check_schedules(None) == []
