"""SIGTERM, Ctrl-C and worse: what runs may end, what has not begun is given back, nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Attempt, Message, Worker
from django_pgqueue.worker.claim import give_back
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.processes import MANAGE, ROOT, group
from tests.support.site.tasks import hold, hold_on, nothing, write
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import ended, holder, started, statuses
from tests.support.window import Window

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


def test_running_jobs_may_end_and_unstarted_ones_are_released(start: Start, diary: Diary) -> None:
    held, behind = claimed_ahead(diary)
    worker = start("--threads", "1", "-v", "0", ready=False)
    started(diary, "x")
    wait_until(lambda: any(holder(result) for result in behind), "more is claimed ahead")

    worker.send(signal.SIGTERM)
    wait_until(lambda: not any(holder(result) for result in behind), "what had not begun is given back")
    assert holder(held)
    diary.allow("x-1")
    assert worker.ends() == 0
    assert ended(held).return_value == {"attempt": 1}

    assert waiting_attempts(behind) == {0}
    assert not Attempt.objects.filter(message_id__in=[result.id for result in behind]).exists()
    assert start("--burst", "-v", "0", ready=False).ends() == 0
    assert {tuple(ended(result).worker_ids) for result in behind} == {(behind[0].worker_ids[0],)}


def claimed_ahead(diary: Diary) -> tuple[AnyTaskResult, list[AnyTaskResult]]:
    """Jobs so short that the worker claims many at a time, then one that holds, and what is behind it."""
    for _ in range(30):
        nothing.enqueue()
    return hold.enqueue("x"), [write.enqueue(f"{n}") for n in range(30)]


def waiting_attempts(results: list[AnyTaskResult]) -> set[int]:
    """How often the jobs that wait have been tried."""
    waiting = Message.objects.filter(pk__in=[result.id for result in results])
    return set(waiting.values_list("attempt", flat=True))


def test_a_job_that_does_not_end_within_grace_is_taken_over_at_once(start: Start, diary: Diary) -> None:
    result = hold.enqueue("x")
    leaving = start("--grace-seconds", "0.5", "--lock-seconds", "600")
    started(diary, "x")
    begun = time.monotonic()
    leaving.send(signal.SIGTERM)
    assert leaving.ends() == 1
    assert time.monotonic() - begun >= 0.5
    assert f"abandoned id={result.id} task=tests.support.site.tasks.hold attempt=1" in leaving.output

    start()
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    ended(result)
    assert statuses(result) == ["lost", "succeeded"]
    lost = Attempt.objects.get(message_id=result.id, attempt=1)
    assert str(lost.error_message).endswith(" stopped while it ran (loss 1 of 20)")


def test_a_trigger_that_refuses_one_end_keeps_no_other_job(
    transactional_db: None, diary: Diary, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """One of those that run, and one of those that have not begun."""
    monkeypatch.setattr(give_back, "STALLED_SECONDS", 600.0)
    for _ in range(30):
        nothing.enqueue()
    running = [hold.enqueue("x"), hold.enqueue("y")]
    behind = [write.enqueue(f"{n}") for n in range(30)]
    consumer = WorkerProcess(WorkerSettings(threads=2))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        started(diary, "x")
        started(diary, "y")
        wait_until(lambda: sum(holder(result) is not None for result in behind) > 1, "more is claimed ahead")
        held = "select id from pgqueue_message where id = any(%s) and worker is not null limit 1"
        refused = session.value(held, [int(result.id) for result in behind])
        session.rows(f"""
            create function refuse() returns trigger language plpgsql as $$ begin
                raise exception 'not this one';
            end $$;
            create trigger refuse before insert on pgqueue_attempt for each row
            when (new.message_id = {running[0].id}) execute function refuse();
            create trigger refuse before update on pgqueue_message for each row
            when (new.id = {refused} and new.worker is null) execute function refuse()
        """)
        consumer.stop()
        consumer.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()
    finally:
        consumer.stop()
        for word in ("x-1", "y-1"):
            diary.allow(word)
        session.rows("drop function if exists refuse() cascade")
    assert f"not given up id={running[0].id}: not this one" in caplog.text
    assert f"not given back count=1 ids=[{refused}]" in caplog.text
    assert statuses(running[1]) == ["lost"]
    ended = "select pgqueue_now() >= unlock_at from pgqueue_message where id = %s"
    assert session.value(ended, int(running[0].id)), "its lock has ended"
    assert waiting_attempts([result for result in behind if int(result.id) != refused]) == {0}
    wait_until(lambda: not session.strangers(), "the slots are gone")


def test_many_running_jobs_are_given_up_together(
    transactional_db: None, diary: Diary, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a statement for each, a slow connection has time for a part of them: the others keep their locks."""
    monkeypatch.setattr("django_pgqueue.worker.claim.held.LEAVE_SECONDS", 0.0)
    words = ["x", "y", "z"]
    running = [hold.enqueue(word) for word in words]
    consumer = WorkerProcess(WorkerSettings(threads=3))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        for word in words:
            started(diary, word)
    finally:
        consumer.stop()
        consumer.stop()
        thread.join(SECONDS)
        for word in words:
            diary.allow(f"{word}-1")
    wait_until(lambda: not session.strangers(), "the slots are gone")
    assert [statuses(result) for result in running] == [["lost"]] * 3


def test_a_session_that_breaks_while_the_worker_leaves_is_opened_again(
    transactional_db: None, diary: Diary, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A deploy stops the workers, and starts the pooler again: nothing is wrong with the database."""
    running = hold.enqueue("x")
    consumer = WorkerProcess(WorkerSettings(threads=1))
    stop = consumer.slots.stop

    def stop_slots() -> None:
        for pid in session.strangers():
            session.rows("select pg_terminate_backend(%s, 10000)", pid)
        stop()

    monkeypatch.setattr(consumer.slots, "stop", stop_slots)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        started(diary, "x")
    finally:
        consumer.stop()
        consumer.stop()
        thread.join(SECONDS)
        diary.allow("x-1")
    wait_until(lambda: not session.strangers(), "the slots are gone")
    assert statuses(running) == ["lost"]
    assert "while leaving" not in caplog.text
    assert not Worker.objects.exists()


def test_a_second_signal_stops_now(start: Start, diary: Diary) -> None:
    held, behind = claimed_ahead(diary)
    worker = start("--threads", "1", "-v", "2", "--grace-seconds", "600", ready=False)
    started(diary, "x")
    worker.send(signal.SIGTERM)
    worker.says("stopping")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 1
    assert f"abandoned id={held.id}" in worker.output
    assert waiting_attempts(behind) == {0}


def test_two_signals_in_a_row_still_release_unstarted_jobs(
    transactional_db: None, diary: Diary, session: Session
) -> None:
    held, behind = claimed_ahead(diary)
    consumer = WorkerProcess(WorkerSettings(threads=1))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        started(diary, "x")
        wait_until(lambda: any(holder(result) for result in behind), "more is claimed ahead")
    finally:
        consumer.stop()
        consumer.stop()
        thread.join(SECONDS)
        diary.allow("x-1")
    wait_until(lambda: not session.strangers(), "the slot is gone")
    assert waiting_attempts(behind) == {0}
    assert Message.objects.get(pk=held.id).attempt == 1


@pytest.mark.parametrize("signals", [1, 2])
def test_a_locked_row_keeps_no_other_message_from_being_given_back(
    transactional_db: None, diary: Diary, session: Session, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    monkeypatch.setattr(give_back, "STALLED_SECONDS", 600.0)
    _, behind = claimed_ahead(diary)
    consumer = WorkerProcess(WorkerSettings(threads=1))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        started(diary, "x")
        wait_until(lambda: sum(holder(result) is not None for result in behind) > 1, "more is claimed ahead")
        with session.connection.transaction():
            held = "select id from pgqueue_message where id = any(%s) and worker is not null limit 1 for update"
            locked = session.value(held, [int(result.id) for result in behind])
            for _ in range(signals):
                consumer.stop()
            others = [result for result in behind if int(result.id) != locked]
            wait_until(lambda: waiting_attempts(others) == {0}, "the others are given back")
            assert Message.objects.get(pk=locked).attempt == 1
    finally:
        consumer.stop()
        diary.allow("x-1")
        thread.join(SECONDS)
    wait_until(lambda: not session.strangers(), "the slot is gone")
    assert not Attempt.objects.filter(message_id__in=[result.id for result in others]).exists()


def test_an_async_job_that_a_burst_gives_up_is_not_told_of_as_failed(start: Start, diary: Diary) -> None:
    """Python closes its coroutine when the program ends, which raises GeneratorExit there."""
    result = hold_on.enqueue("x")
    worker = start("--burst")
    started(diary, "x")
    worker.send(signal.SIGTERM)
    worker.says("stopping")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 1
    assert statuses(result) == ["lost"]
    assert worker.output.splitlines()[-1].endswith(" abandoned=1")
    assert f"failed id={result.id}" not in worker.output


def test_ctrl_c_reaches_the_whole_group_and_counts_once(start: Start, diary: Diary) -> None:
    results = [hold.enqueue("x"), hold_on.enqueue("y")]
    worker = start("--processes", "2", "--threads", "1")
    started(diary, "x")
    started(diary, "y")
    worker.send_to_group(signal.SIGINT)
    worker.says("stopping", times=2)
    assert len(worker.alive) == 3
    diary.allow("x-1")
    diary.allow("y-1")
    assert worker.ends() == 0
    assert [statuses(ended(result)) for result in results] == [["succeeded"], ["succeeded"]]


@pytest.mark.parametrize("arguments", ["--processes 1 --health-port 0", "--reload", "--burst"])
def test_a_closed_terminal_stops_the_worker_gracefully(
    environment: dict[str, str], session: Session, diary: Diary, arguments: str
) -> None:
    """The kernel sends SIGHUP to the whole group, and the shell once more, and who ends the login sends SIGTERM:
    together they are one request.
    """
    held, behind = claimed_ahead(diary)
    window = Window("qworker", "--threads", "1", *arguments.split(), environment=environment)
    started(diary, "x")
    wait_until(lambda: any(holder(result) for result in behind), "more is claimed ahead")
    window.closes()
    wait_until(lambda: not any(holder(result) for result in behind), "what had not begun is given back")
    os.killpg(window.process.pid, signal.SIGHUP)
    os.killpg(window.process.pid, signal.SIGTERM)
    diary.allow("x-1")
    assert window.process.wait(SECONDS) == 0
    assert statuses(ended(held)) == ["succeeded"]
    wait_until(lambda: not session.strangers(), "the workers' sessions are closed")


def test_nohup_lets_a_worker_go_on_without_its_terminal(
    environment: dict[str, str], session: Session, diary: Diary
) -> None:
    window = Window("qworker", environment=environment, starts=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])
    window.shows("started worker=")
    window.closes()
    ended(write.enqueue("x"))
    window.process.send_signal(signal.SIGTERM)
    assert window.process.wait(SECONDS) == 0
    wait_until(lambda: not session.strangers(), "the workers' sessions are closed")


@pytest.mark.parametrize("arguments", ["--processes 1", "--reload", "--burst"])
def test_a_worker_whose_signals_were_blocked_by_who_started_it_can_be_stopped(
    environment: dict[str, str], session: Session, diary: Diary, arguments: str
) -> None:
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2}
    hold.enqueue("x")
    process = subprocess.Popen(
        [sys.executable, "-m", MANAGE, "qworker", *arguments.split()],
        cwd=ROOT,
        env=environment,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signals),  # noqa: PLW1509 -- it takes no lock
    )
    try:
        started(diary, "x")
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)  # signals of one kind that are pending are one: then it takes the grace
        assert process.wait(SECONDS) == 1
    finally:
        process.kill()
    wait_until(lambda: not session.strangers(), "the workers' sessions are closed")


def test_sigterm_to_the_whole_group_counts_once(start: Start, diary: Diary) -> None:
    """As systemd and others send it: the children hear it from there, and once more from the supervisor."""
    results = [hold.enqueue("x"), hold_on.enqueue("y")]
    worker = start("--processes", "2", "--threads", "1")
    started(diary, "x")
    started(diary, "y")
    for pid in worker.children:
        worker.send_to(pid, signal.SIGTERM)
    worker.says("stopping", times=2)
    worker.send(signal.SIGTERM)
    diary.allow("x-1")
    diary.allow("y-1")
    assert worker.ends() == 0
    assert [statuses(ended(result)) for result in results] == [["succeeded"], ["succeeded"]]


def test_the_children_of_a_killed_supervisor_notice_and_stop(start: Start, diary: Diary) -> None:
    result = hold.enqueue("x")
    worker = start("--processes", "2", "--metrics-port", "0")
    started(diary, "x")
    worker.says("started worker=", times=2)
    worker.send(signal.SIGKILL)
    worker.process.wait()
    wait_until(lambda: len(worker.alive) == 1, "the idle one and the one that serves metrics leave")
    assert holder(result)
    diary.allow("x-1")
    wait_until(lambda: not worker.alive, "the other one leaves when its job has ended")
    assert ended(result).return_value == {"attempt": 1}
    assert statuses(result) == ["succeeded"]
    assert not Worker.objects.exists()


def test_a_process_that_is_killed_while_it_stops_is_told_of(start: Start, diary: Diary) -> None:
    hold.enqueue("x")
    worker = start("--grace-seconds", "300")
    started(diary, "x")
    worker.send(signal.SIGTERM)
    worker.says("stopping")
    [pid] = worker.children
    worker.send_to(pid, signal.SIGKILL)
    worker.says(f"crashed pid={pid} code=-9 lived_seconds=")
    assert worker.ends() == 1


def test_a_process_that_hangs_in_a_line_of_its_log_is_killed(
    environment: dict[str, str], session: Session, diary: Diary
) -> None:
    """Nobody reads its output, as on a terminal after Ctrl-S: it would keep the locks of its jobs for ever."""
    hold.enqueue("x")
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", MANAGE, "qworker", "--processes", "2", "--grace-seconds", "0.1"],
        cwd=ROOT,
        env=environment,
        stdout=write,
        stderr=write,
        start_new_session=True,
    )
    try:
        started(diary, "x")
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, b"x")
        os.set_blocking(write, True)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: group(process.pid) == [process.pid], "the processes are killed")
    finally:
        os.close(write)
        os.close(read)
        assert process.wait(SECONDS) == 1
    wait_until(lambda: not session.strangers(), "the workers' sessions are closed")


def test_a_worker_that_waits_for_a_database_lock_can_be_stopped(start: Start, session: Session) -> None:
    worker = start("--grace-seconds", "0.5")
    with session.connection.transaction():
        session.rows("lock table pgqueue_message in access exclusive mode")
        wait_until(
            lambda: session.value("select count(*) from pg_locks where relation = 'pgqueue_message'::regclass") > 1,
            "the worker waits for the table",
        )
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0
        assert worker.alive == []


SIGNALS_WHILE_STARTING = """
import os, random, signal, sys, time
import django
django.setup()
from django_pgqueue.worker.settings import WorkerSettings
from django_pgqueue.worker.supervise.supervisor import Supervisor

for round in range(15):
    pid = os.fork()
    if pid == 0:
        os._exit(Supervisor(WorkerSettings(processes=2)).run())
    time.sleep(random.uniform(0.0, 0.04))
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            sys.exit(f"round {round}: deaf")
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(ended[1])
    if code not in (0, -signal.SIGTERM):
        sys.exit(f"round {round}: exit code {code}")
print("all stopped")
"""


def test_a_signal_at_any_moment_of_the_start_stops_the_worker(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS_WHILE_STARTING], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "all stopped\n", done.stderr
