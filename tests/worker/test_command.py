"""``manage.py qworker``: what its flags do, and what it says when they, or the database, are wrong."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue import functions
from django_pgqueue.functions import sql_files
from django_pgqueue.management.commands import qworker
from django_pgqueue.models import Message, Worker
from django_pgqueue.tasks import registry
from tests.support.address import conninfo
from tests.support.databases import install, session_in
from tests.support.processes import MANAGE, ROOT
from tests.support.site.tasks import chain, fail, fail_with_backoff, hold, hold_on, nothing, write
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import at_rest, ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.worker.settings import WorkerSettings
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

BURST = ("--burst", "-v", "0")


def enqueue_to(*queues: str) -> None:
    for queue in queues:
        write.using(queue_name=queue).enqueue(queue)


@pytest.mark.parametrize(
    ("flags", "served"),
    [
        (["-Q", " a , b ", "--exclude-queues", "b"], {"a"}),
        (["--exclude-queues", "c"], {"a", "b"}),
    ],
    ids=" ".join,
)
def test_a_worker_serves_the_given_queues(start: Start, diary: Diary, flags: list[str], served: set[str]) -> None:
    enqueue_to("a", "b", "c")
    assert start(*BURST, *flags, ready=False).ends() == 0
    assert set(diary.words()) == served
    assert set(Message.objects.values_list("queue", flat=True)) == {"a", "b", "c"} - served


def test_a_burst_leaves_when_nothing_is_ready(start: Start, diary: Diary) -> None:
    """What the jobs enqueue belongs to it; what is scheduled, and retries that wait, stay."""
    chain.enqueue(5)
    scheduled = nothing.using(run_after=dt.timedelta(hours=1)).enqueue()
    waiting = fail_with_backoff.enqueue(3600)
    assert start(*BURST, "--threads", "2", ready=False).ends() == 0
    assert diary.words().count("link") == 6
    assert set(Message.objects.values_list("id", flat=True)) == {int(scheduled.id), int(waiting.id)}
    assert statuses(scheduled) == []
    assert statuses(waiting) == ["retried"]
    assert not Worker.objects.exists()


def test_after_a_burst_in_a_program_signals_do_what_they_did_before(environment: dict[str, str]) -> None:
    program = (
        "import django, signal; django.setup()\n"
        "from django.core.management import call_command\n"
        "numbers = [signal.SIGTERM, signal.SIGINT]\n"
        "before = [signal.getsignal(number) for number in numbers]\n"
        "call_command('qworker', '--burst', '-v', '0')\n"
        "print([signal.getsignal(number) for number in numbers] == before)\n"
    )
    settings = {"DJANGO_SETTINGS_MODULE": "tests.support.site.settings"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment | settings, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "True\n", ran.stderr


def test_a_burst_waits_for_a_long_job_without_using_the_processor(start: Start, diary: Diary) -> None:
    results: list[AnyTaskResult] = [hold.enqueue("x"), hold_on.enqueue("y")]
    worker = start(*BURST, ready=False, PYTHONWARNINGS="error")
    started(diary, "x")
    started(diary, "y")
    at_rest(worker.pid)
    chained = chain.enqueue(0)  # as a job that is running might do
    diary.allow("x-1")
    diary.allow("y-1")
    assert worker.ends() == 0
    assert [statuses(result) for result in [*results, chained]] == [["succeeded"]] * 3
    assert "Warning" not in worker.output, "it leaves no event loop open"


def test_each_process_is_a_worker_of_its_own(start: Start, diary: Diary) -> None:
    results = [hold.enqueue(word) for word in "abc"]
    worker = start("--processes", "3", "--threads", "1")
    for word in "abc":
        started(diary, word)
    workers = Worker.objects.all()
    assert {known.pid for known in workers} == set(worker.children) == {entry["pid"] for entry in diary.entries()}
    assert {known.slots for known in workers} == {1}
    for word in "abc":
        diary.allow(f"{word}-1")
    assert len({ended(result).worker_ids[0] for result in results}) == 3
    assert worker.stop() == 0
    assert worker.alive == [], "nothing stays behind"
    assert not Worker.objects.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threads", "0"], "--threads 0 is not a number from 1 to"),
        (["--processes", "-1"], "--processes -1 is not a number from 1 to"),
        (["--processes", "70000"], "--processes 70000 is not a number from 1 to 1,000"),
        (["--threads", str(10**20)], "is not a number from 1 to 100,000"),
        (["--dry-run", str(10**20)], "is not a number from 1 to 1,000,000"),
        (["--threads", "many"], "argument --threads/--concurrency: invalid int value: 'many'"),
        (["--lock-seconds", "0"], "--lock-seconds 0.0 is not a number above 0"),
        (["--lock-seconds", "nan"], "--lock-seconds nan is not a number above 0"),
        (["--lock-seconds", "inf"], "--lock-seconds inf is not a number above 0"),
        (["--lock-seconds", "1e300"], "--lock-seconds 1e+300 is not a number above 0"),
        (["--grace-seconds", "-1"], "--grace-seconds -1.0 is not a number above 0"),
        (["--grace-seconds", "nan"], "--grace-seconds nan is not a number above 0"),
        (["--queues", ","], "--queues ',' names no queue"),
        (["--queues", ""], "--queues '' names no queue"),
        (["--exclude-queues", " , "], "--exclude-queues ' , ' names no queue"),
        (["--queues", "a,b", "--exclude-queues", "b,a"], "--exclude-queues leaves none of --queues a,b"),
        (["--metrics-port", "70000"], "--metrics-port 70000 is not a port"),
        (["--health-port", "70000"], "--health-port 70000 is not a port"),
        (["--health-port", "9101", "--metrics-host", ""], "--metrics-host '' names no address"),
        (["--backend", "other"], "TASKS has no backend 'other' of django_pgqueue"),
        (["--max-jobs", "0"], "--max-jobs 0 is not a number from 1 to"),
        (["--max-jobs", "-3"], "--max-jobs -3 is not a number from 1 to"),
        (["--max-jobs", "many"], "invalid int value: 'many'"),
        (["--max-memory", "0"], "--max-memory 0 is not a number from 1 to"),
        (["--max-memory", "1G"], "invalid int value: '1G'"),
        (["--exit-when-idle", "0"], "--exit-when-idle 0.0 is not a number above 0"),
        (["--exit-when-idle", "60", "--burst"], "use only one of them"),
        (["--exit-when-idle", "60", "--reload"], "--exit-when-idle exits, and --reload does not"),
        (["--reload", "--burst"], "--burst exits when no message is ready, and --reload does not exit"),
        (["--reload"], "--reload needs a command line that can be run again"),
        (["--reload", "--noreload"], "argument --noreload: not allowed with argument --reload"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_flag_is_an_error(flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qworker, "run", lambda _: pytest.fail("it started to work"))
    with pytest.raises(CommandError, match=re.escape(message)):
        call_command("qworker", *flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--processes", "2"], "--processes 2: without forks a worker has one process"),
        (["--reload"], "--reload needs forks"),
        (["--max-jobs", "5"], "--max-jobs needs forks"),
        (["--max-memory", "5"], "--max-memory needs forks"),
        (["--health-port", "0"], "--health-port needs forks"),
        (["--metrics-port", "9100"], "--metrics-port needs forks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_that_needs_forks_is_an_error_without_them(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qworker, "can_fork", lambda: False)
    monkeypatch.setattr(qworker, "run", lambda _: pytest.fail("it started to work"))
    with pytest.raises(CommandError, match=re.escape(message)) as refused:
        call_command("qworker", *flags)
    assert f"This system ({sys.platform}) has none." in str(refused.value)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[WorkerSettings]:
    """What a worker is started with, that neither works nor logs."""
    served: list[WorkerSettings] = []
    monkeypatch.setattr(qworker, "log_to_terminal", lambda *_: None)
    monkeypatch.setattr(qworker, "look_for_the_queue", lambda _: None)
    monkeypatch.setattr(qworker, "run", served.append)
    return served


@pytest.mark.parametrize(
    ("flags", "doubted"),
    [
        (["--queues", "mail,mial"], "mial"),
        (["--exclude-queues", "rapports,default"], "rapports"),
        (["--queues", "mail,default"], ""),
        (["--queues", "mial", "-v", "0"], ""),
        ([], ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_queue_that_no_task_can_use_is_warned_about_and_served(
    flags: list[str], doubted: str, settings: Any, served: list[WorkerSettings]
) -> None:
    registry.autodiscover()  # the example's tasks have queues of their own, which are no longer allowed then
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "mail"]}}
    said = StringIO()
    call_command("qworker", *flags, stderr=said)
    assert said.getvalue() == (
        f"No task of this project can be in {doubted}: see QUEUES in TASKS.\n" if doubted else ""
    )
    assert len(served) == 1


def test_if_any_queue_name_is_allowed_there_is_no_warning(settings: Any, served: list[WorkerSettings]) -> None:
    assert settings.TASKS["default"]["QUEUES"] == []
    said = StringIO()
    call_command("qworker", "--queues", "mial", stderr=said)
    assert (said.getvalue(), len(served)) == ("", 1)


def test_missing_migrations_are_an_error(start: Start, empty_database: str) -> None:
    worker = start(ready=False, PGQUEUE_TEST_DATABASE=empty_database)
    assert worker.ends() == 1
    assert worker.output.startswith("CommandError: ")
    assert "Run manage.py migrate django_pgqueue --database default" in worker.output
    assert "HINT" not in worker.output  # PostgreSQL's would lead astray
    assert "Traceback" not in worker.output


@pytest.mark.parametrize("flags", [[], ["--burst"], ["--dry-run"]], ids=["served", "burst", "dry run"])
def test_a_queue_of_an_earlier_release_is_an_error_before_any_claim(
    start: Start, empty_database: str, flags: list[str]
) -> None:
    with session_in(conninfo(empty_database)) as old:
        install(old, sql_files.FIRST)
        old.create(task="tests.support.site.tasks.nothing", content={"args": [], "kwargs": {}})
        worker = start(*flags, ready=False, PGQUEUE_TEST_DATABASE=empty_database)
        assert worker.ends() == 1
        assert worker.output == (
            f"CommandError: The database 'default' has the queue of {sql_files.FIRST}, and this code needs that of "
            f"{functions.needed()}. Run manage.py migrate django_pgqueue --database default or, without Django, "
            "psql -f sql/upgrade.sql\n"
        )
        assert [(message.attempt, message.worker) for message in old.messages()] == [(0, None)]
        assert old.rows("select from pgqueue_worker") == []


@pytest.fixture
def empty_database(session: Session) -> Iterator[str]:
    name = f"{session.value('select current_database()')}_empty"
    session.rows(f"drop database if exists {name}")
    session.rows(f"create database {name}")
    yield name
    session.rows(f"drop database {name} with (force)")


def test_an_unreachable_database_is_an_error(start: Start, environment: dict[str, str]) -> None:
    nowhere = re.sub(r"@[^/]+/", "@127.0.0.1:1/", environment["DATABASE_URL"])
    worker = start(ready=False, DATABASE_URL=nowhere)
    assert worker.ends() == 1
    assert worker.output.startswith("CommandError: The database cannot be reached: ")
    assert "Traceback" not in worker.output


def test_a_worker_logs_one_line_per_job(start: Start) -> None:
    done: AnyTaskResult = write.enqueue("x")
    retried, failed = fail.using(max_attempts=2).enqueue("twice"), fail.enqueue("two\nlines")
    worker = start("--threads", "1", "--burst", ready=False)
    assert worker.ends() == 0
    lines = [line for line in worker.output.splitlines() if " id=" in line and "Task id" not in line]
    for wanted in (
        rf"INFO    succeeded id={done.id} task=tests\.support\.site\.tasks\.write attempt=1 ms=\d+\.\d",
        rf"ERROR   failed id={failed.id} task=.* attempt=1 ms=\d+\.\d error=builtins\.ValueError: two lines",
        rf"WARNING retried id={retried.id} .* attempt=1 .* in_seconds=\d\.\d error=builtins.ValueError: twice",
    ):
        lines.remove(next(line for line in lines if re.fullmatch(rf"[-\d]+ [:,\d]+ {wanted}", line)))
    assert all("attempt=2" in line for line in lines), lines


def test_quiet_logs_only_errors(start: Start) -> None:
    write.enqueue("x")
    fail.using(max_attempts=2).enqueue("tried again")
    failed = fail.enqueue("failed")
    worker = start(*BURST, ready=False)
    assert worker.ends() == 0
    assert f"failed id={failed.id} " in worker.output
    for word in ("succeeded id=", "retried id=", "started worker=", "stopped worker="):
        assert word not in worker.output


def test_a_worker_may_be_started_without_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("django_pgqueue")
    for name, value in {"propagate": False, "handlers": [], "level": logger.level}.items():
        monkeypatch.setattr(logger, name, value)
    monkeypatch.setattr(sys, "stdout", None)
    qworker.log_to_terminal({"verbosity": 1, "log_format": "text"})
    logger.warning("nobody reads this")
    handler = logger.handlers[0]  # the next one mails failures
    with handler.stream:  # type: ignore[attr-defined]
        assert handler.stream.name == os.devnull  # type: ignore[attr-defined]


@pytest.mark.parametrize("arguments", ["-v1", "--reload"])
def test_a_worker_may_be_started_with_all_standard_files_closed(
    environment: dict[str, str], session: Session, arguments: str
) -> None:
    """None of its sockets and pipes gets a number to which libraries write their errors."""
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", MANAGE, "qworker", arguments]
    process = subprocess.Popen(shell, cwd=ROOT, env=environment)
    try:
        wait_until(lambda: Worker.objects.exists() or process.poll() is not None, "the worker has started")
        assert process.poll() is None
        for pid in (process.pid, Worker.objects.get().pid):
            assert {Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)} == {Path(os.devnull)}
        process.terminate()
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
    wait_until(lambda: not session.strangers(), "the worker's sessions are closed")


def test_a_worker_in_another_thread_is_an_error(transactional_db: None) -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(CommandError, match="only the main thread can"):
        threads.submit(call_command, "qworker", "-v0").result()


@pytest.mark.parametrize(("module", "question", "threads"), qworker.GREEN)
def test_a_worker_without_real_threads_does_not_start(
    monkeypatch: pytest.MonkeyPatch, module: str, question: str, threads: str
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{question: lambda name: name == threads}))
    with pytest.raises(CommandError, match=f"{module.partition('.')[0]} has replaced the threads"):
        call_command("qworker", *BURST)
