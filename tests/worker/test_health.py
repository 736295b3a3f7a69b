"""A worker that is watched: its metrics, and whether it is well, whatever has happened to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.management.commands import qworker
from django_pgqueue.values.times import microseconds
from django_pgqueue.worker.health import server
from django_pgqueue.worker.health.counters import MAX_SERIES, OTHERS, UNKNOWN, Counters
from django_pgqueue.worker.health.shared_state import TEXT_BYTES, SharedState
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run.outcome import EndedAttempt, Failed, Retried, Succeeded
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.monitoring import address, becomes, get, health, metrics
from tests.support.pages import section
from tests.support.site.tasks import die, fail, fail_once_on, hold, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import ended, started
from tests.worker.test_database_away import door

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start
    from tests.worker.test_database_away import Door

__all__ = ["door"]

WATCHED = ("--metrics-port", "0")
NOTHING = "tests.support.site.tasks.nothing"


def test_prometheus_reads_what_all_processes_have_done(start: Start) -> None:
    for _ in range(20):
        nothing.enqueue()
    fail.enqueue("no")
    fail_once_on.using(max_attempts=2, queue_name="mail").enqueue()
    functions.enqueue(
        connection, functions.NewMessage(content='{"args": [], "kwargs": {}}', task="tests.support.site.tasks.gone")
    )
    worker = start(*WATCHED, "--processes", "2", "-v", "1", options={"UNKNOWN_TASK_SECONDS": 0})
    wait_until(lambda: metrics(worker).get(("pgqueue_worker_recorded_attempts_sum",)) == 24, "all is told")
    found, attempts = metrics(worker), "pgqueue_worker_attempts_total"
    assert found[attempts, "default", "succeeded", NOTHING] == 20
    assert found[attempts, "default", "failed", UNKNOWN] == 1
    assert found[attempts, "default", "failed", "tests.support.site.tasks.fail"] == 1
    assert found[attempts, "mail", "retried", "tests.support.site.tasks.fail_once_on"] == 1
    assert found[attempts, "mail", "succeeded", "tests.support.site.tasks.fail_once_on"] == 1
    for name in ("run", "wait"):
        assert found[f"pgqueue_worker_{name}_seconds_count", "default", NOTHING] == 20
        assert found[f"pgqueue_worker_{name}_seconds_bucket", "+Inf", "default", NOTHING] == 20
        assert 0 < found[f"pgqueue_worker_{name}_seconds_sum", "default", NOTHING] < 20 * 30
    assert found["pgqueue_worker_claimed_messages_sum",] == found["pgqueue_worker_recorded_attempts_sum",] == 24
    assert found["pgqueue_worker_processes", "working"] == 2
    assert found["pgqueue_worker_slots",] == 8
    assert found["pgqueue_worker_held_messages",] == 0
    on_the_page = re.findall(r"^\| `(pgqueue_\w+)`", section("monitoring", "Metrics of a worker"), re.MULTILINE)
    assert {re.sub("_(bucket|sum|count)$", "", name) for name, *_ in found} == set(on_the_page)
    assert metrics(worker, openmetrics=True).items() >= {
        (attempts, "default", "succeeded", NOTHING): 20.0, ("pgqueue_worker_reconnects_total",): 0.0,
    }.items()  # fmt: skip
    assert worker.stop() == 0


def test_counts_of_a_process_outlive_it(start: Start, diary: Diary) -> None:
    worker = start(*WATCHED, "--max-jobs", "3", "--lock-seconds", "1")
    for result in [nothing.enqueue() for _ in range(10)]:
        ended(result)
    done = ("pgqueue_worker_attempts_total", "default", "succeeded", NOTHING)
    wait_until(lambda: metrics(worker).get(done) == 10, "all are told")
    die.using(max_attempts=1).enqueue("x")  # once: what it takes along is what nobody has been told yet
    worker.says("crashed pid=")
    ended(nothing.enqueue())
    wait_until(lambda: metrics(worker)[done] == 11, "the numbers go on")
    found = metrics(worker)
    assert found["pgqueue_worker_process_exits_total", "recycled"] >= 1
    assert found["pgqueue_worker_process_exits_total", "crashed"] >= 1


def test_a_healthy_worker_reports_ok(start: Start, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = start(*WATCHED, "--health-port", "0", "--processes", "2", "--threads", "1")
    started(diary, "x")
    becomes(worker, "/readyz", 200, "ok")
    wait_until(lambda: sum(process["running"] for process in health(worker)[1]["processes"]) == 1, "it says what runs")
    status, body = health(worker)
    assert (status, body["status"], body["stopping"], body["pid"]) == (200, "ok", False, worker.pid)
    assert {process["pid"] for process in body["processes"]} < set(worker.children)
    assert {process["state"] for process in body["processes"]} == {"working"}
    assert all(process["connected"] and process["dequeued_seconds_ago"] < 60 for process in body["processes"])
    elsewhere = address(worker, metrics=False)
    assert elsewhere != address(worker)
    assert get(f"{elsewhere}/healthz")[0] == 200
    assert [get(elsewhere + path)[0] for path in ("/metrics", "/")] == [404, 404]
    diary.allow("x-1")
    ended(held)


def test_a_worker_without_its_database_is_alive_and_not_ready(start: Start, door: Door) -> None:
    worker = start(*WATCHED)
    becomes(worker, "/readyz", 200, "ok")
    door.shut()
    becomes(worker, "/readyz", 503, "disconnected")
    status, body = health(worker)
    assert (status, [process["connected"] for process in body["processes"]]) == (200, [False])
    assert metrics(worker)["pgqueue_worker_processes", "disconnected"] == 1
    door.open()
    becomes(worker, "/readyz", 200, "ok")
    wait_until(lambda: metrics(worker)["pgqueue_worker_reconnects_total",] == 1, "it is counted")


def test_a_process_that_hangs_is_reported(start: Start) -> None:
    worker = start(*WATCHED, "--processes", "2", "--lock-seconds", "2")
    pid = becomes(worker, "/readyz", 200, "ok")["processes"][0]["pid"]
    worker.send_to(pid, signal.SIGSTOP)
    body = becomes(worker, "/healthz", 503, "stuck")
    assert [process["pid"] for process in body["processes"] if process["state"] == "stuck"] == [pid]
    assert health(worker, "/readyz")[0] == 503
    worker.send_to(pid, signal.SIGCONT)
    becomes(worker, "/healthz", 200, "ok")


def test_a_supervisor_that_hangs_is_reported() -> None:
    from django_pgqueue.worker.health.status import SUPERVISOR_SECONDS, Health

    board = SharedState(1)
    board.supervise(turned=100.0, pid=1, stopping=False, crashed=0, recycled=0)
    board.places[0].begin(pid=2, now=100.0)
    late = 100.0 + SUPERVISOR_SECONDS + 1
    board.places[0].say(turned=late, looked=late, running=0, connected=True, stopping=False)
    assert Health.of(board, lock_seconds=60, now=late - 2).alive
    assert not Health.of(board, lock_seconds=60, now=late).alive


def test_a_worker_that_stops_is_alive_until_its_jobs_have_ended(start: Start, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = start(*WATCHED)
    url = address(worker)
    started(diary, "x")
    worker.send_to_group(signal.SIGTERM)  # as some service managers do
    becomes(worker, "/readyz", 503, "stopping")
    assert health(worker)[0] == 200
    diary.allow("x-1")
    assert worker.ends() == 0
    assert ended(held).return_value == {"attempt": 1}
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/healthz")
    assert worker.alive == []


def test_the_process_that_answers_is_replaced_and_counts_go_on(start: Start) -> None:
    ended_before = nothing.enqueue()
    worker = start(*WATCHED)
    ended(ended_before)
    done = ("pgqueue_worker_attempts_total", "default", "succeeded", NOTHING)
    wait_until(lambda: metrics(worker).get(done) == 1, "it is told")
    known = {process["pid"] for process in becomes(worker, "/readyz", 200, "ok")["processes"]}
    [server] = set(worker.children) - known
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: "which serves metrics and health" in worker.output, "it is told")
    wait_until(lambda: len(worker.children) == 2, "another one is there")
    becomes(worker, "/readyz", 200, "ok")
    assert metrics(worker)[done] == 1


def test_a_port_in_use_is_an_error(start: Start, session: Session) -> None:
    port = address(start(*WATCHED)).rpartition(":")[2]
    second = start("--health-port", port, ready=False)
    assert second.ends() == 1
    assert f"CommandError: The worker cannot serve at 127.0.0.1 port {port}: Address already in use" in second.output


def test_a_client_that_sends_byte_after_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep a thread, however often its read times out."""
    monkeypatch.setattr(server, "SLOW_SECONDS", 0.2)
    sites = server.Sites(SharedState(1), WorkerSettings())
    with (
        socket.create_server(("127.0.0.1", 0)) as opened,
        server.Server(opened, server.handler(sites, metrics=False)) as serving,
    ):
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        with socket.create_connection(opened.getsockname()) as client:
            client.settimeout(0.05)
            wait_until(lambda: is_cut_off(client), "the connection is cut off")
        serving.shutdown()


def is_cut_off(client: socket.socket) -> bool:
    try:
        client.send(b"G")
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_metrics_need_their_extra_and_health_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qworker, "find_spec", lambda _: None)
    monkeypatch.setattr(qworker, "run", lambda _: 0)
    with pytest.raises(CommandError, match=re.escape("pip install 'django-tasks-pgqueue[prometheus]'")):
        call_command("qworker", "--metrics-port", "0")


@pytest.mark.django_db
def test_attempts_are_counted_by_their_recorded_outcome() -> None:
    for max_attempts in (None, None, 1):
        content = '{"args": [], "kwargs": {}}'
        message = functions.NewMessage(content=content, task=nothing.module_path, max_attempts=max_attempts)
        functions.enqueue(connection, message)
    first, second, third = functions.message_dequeue(connection, worker="w", limit=3, tasks=True)
    now = microseconds(functions.now(connection))
    outcomes = {
        (first.id, 1): EndedAttempt(first, Succeeded(None), now, now),
        (second.id, 1): EndedAttempt(second, Failed(functions.Error(message="no")), now, now),
        (third.id, 1): EndedAttempt(third, Retried(functions.Error(message="no"), 1.0), now, now),
    }
    ends = list(outcomes.values())
    became = record(connection, ends, worker="w")
    assert became == {(third.id, 1): "failed"}
    again = record(connection, ends, worker="w")
    assert again == dict.fromkeys(outcomes, "lost")
    tally = Counters()
    tally.record(ends, became)
    tally.record(ends, again)
    assert tally.series[nothing.module_path, "default"].statuses == {"succeeded": 1, "failed": 2, "lost": 3}


def test_a_retiring_process_is_shown_beside_the_next_one_and_both_are_counted(start: Start, diary: Diary) -> None:
    worker = start(*WATCHED, "--max-jobs", "2", "--threads", "2")
    result = hold.enqueue("x")
    started(diary, "x")
    ended(nothing.enqueue())
    wait_until(lambda: metrics(worker)["pgqueue_worker_processes", "retiring"] == 1, "it retires")
    body = becomes(worker, "/readyz", 200, "ok")
    assert sorted(process["state"] for process in body["processes"]) == ["retiring", "working"]
    found = metrics(worker)
    assert (found["pgqueue_worker_processes", "retiring"], found["pgqueue_worker_processes", "gone"]) == (1, 0)
    assert found["pgqueue_worker_held_messages",] == 1
    ended(nothing.enqueue())
    diary.allow("x-1")
    ended(result)
    wait_until(lambda: metrics(worker).get(("pgqueue_worker_recorded_attempts_sum",)) == 3, "all is told")
    wait_until(lambda: metrics(worker)["pgqueue_worker_processes", "retiring"] == 0, "it has left")
    assert worker.stop() == 0


def test_the_board_shows_the_last_whole_text() -> None:
    first, second, *_ = SharedState(2).places
    assert first.read() == {}
    for number in range(5):
        assert first.write({"reconnects": number})
        assert first.read() == {"reconnects": number}
    assert second.read() == {}
    assert not first.write({"text": "x" * TEXT_BYTES})
    first.clear()
    assert first.read() == {"reconnects": 4}


def test_labels_are_bounded_with_any_queue_content() -> None:
    tally = Counters()
    for number in range(2 * MAX_SERIES):
        tally._series(write.module_path, f"q{number}")
        tally._series(f"tests.support.site.tasks.gone{number}", "default")
    assert len(tally.series) == MAX_SERIES + 1
    assert {task for task, _ in tally.series} == {write.module_path, UNKNOWN, OTHERS}
    assert Counters(tally.state).state == tally.state
    assert len(str(tally.state)) < TEXT_BYTES
