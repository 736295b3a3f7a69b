"""Whatever a task does, and whatever a message says, ends with its reason in the history; the worker lives on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Attempt, Message
from tests.support.site.tasks import fail, nothing, write, write_row_on
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses
from tests.worker.misbehaviour import (
    ERRORS,
    UNPRINTABLE,
    cancel_all_on,
    import_halfway,
    raise_again,
    raise_error,
    raise_error_on,
)

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start
    from tests.support.processes import QWorker


def lives_on(worker: QWorker) -> None:
    """The same process, with the same only slot."""
    assert ended(write.enqueue("after")).return_value == "after"
    assert "crashed" not in worker.output
    assert worker.stop() == 0


@pytest.mark.parametrize("task", [raise_error, raise_error_on], ids=["plain", "async"])
def test_an_error_of_any_kind_is_recorded(start: Start, task: Any) -> None:
    results = {name: task.enqueue(name) for name in ERRORS}
    worker = start("-v", "0", "--threads", "1", ready=False)
    for name, (_, path, text) in ERRORS.items():
        result = ended(results[name])
        attempt = Attempt.objects.get(message_id=result.id)
        assert (name, attempt.status, attempt.error_class) == (name, "failed", path)
        assert str(attempt.error_message).startswith(text), name
        assert "Traceback" in str(attempt.traceback), name
        assert len(str(attempt.error_message)) + len(str(attempt.traceback)) < 310_000, name
        [error] = result.errors
        assert error.exception_class_path == path
        assert error.traceback == attempt.traceback
    lives_on(worker)


def test_an_error_that_cannot_be_printed_is_retried_and_receivers_get_its_end(start: Start, diary: Diary) -> None:
    results = [raise_again.enqueue(name) for name in UNPRINTABLE]
    worker = start("--threads", "2", PGQUEUE_TEST_SIGNALS="1", ready=False)
    for result in results:
        assert statuses(ended(result)) == ["retried", "retried", "failed"]
    heard = {entry["id"]: entry["error"] for entry in diary.entries("finished")}
    assert heard == {result.id: "Unprintable" for result in results}
    assert worker.output.count("receiver failed") == 4 * len(results)  # one receiver raises at each start and end
    lives_on(worker)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_error_that_cannot_be_printed_is_one_line_of_the_log(start: Start, log_format: str) -> None:
    for name in UNPRINTABLE:
        raise_error.enqueue(name)
    worker = start("--burst", "--log-format", log_format, ready=False)
    assert worker.ends() == 0
    lines = [line for line in worker.output.splitlines() if "failed id=" in line]
    assert len(lines) == len(UNPRINTABLE)
    assert max(len(line) for line in worker.output.splitlines()) < 300_000


@pytest.mark.parametrize("log", ["broken", "handled badly"])
def test_a_log_that_raises_costs_no_job_and_no_slot(start: Start, log: str) -> None:
    """A filter of a logger of the project's, or a handler: logging passes on what it raises."""
    results = [task.enqueue(*args) for task, args in ((nothing, ()), (fail, ("no",)), (write_row_on, ("x",)))] * 2
    worker = start("--threads", "1", PGQUEUE_TEST_LOG=log, ready=False)
    assert [ended(result).status for result in results] == ["SUCCESSFUL", "FAILED", "SUCCESSFUL"] * 2
    lives_on(worker)


def test_coroutines_that_are_cancelled_before_they_begin_have_ended(start: Start) -> None:
    others = [write_row_on.using(priority=-1).enqueue("x") for _ in range(5)]
    ender = cancel_all_on.enqueue()
    worker = start("-v", "0", "--threads", "6", ready=False)
    assert ended(ender).status == "SUCCESSFUL"
    for other in others:
        assert ended(other).status == "FAILED"
        assert other.errors[0].exception_class_path == "asyncio.exceptions.CancelledError"
    lives_on(worker)


CALL = '{"args": ["4711-4711"], "kwargs": {}}'
WRITE = "tests.support.site.tasks.write"
NO_CALL = "is not the call of a task"
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown task": ({"task": "tests.support.site.tasks.nobody"}, "has no 'nobody'"),
    "unknown module": ({"task": "tests.worker.nowhere.write"}, "is not registered: tests.worker.nowhere has not been"),
    "a class": ({"task": "tests.support.site.tasks.Diary"}, "a type of that name. Declare it with @task"),
    "a function": ({"task": "tests.support.site.tasks.close"}, "a function of that name. Declare it with @task"),
    "a function of a task": ({"task": "tests.support.site.tasks.write.func"}, "is not registered"),
    "a module": ({"task": "tests.support.site.tasks"}, "a module of that name"),
    "the system": ({"task": "os.system"}, "is not a task"),
    "a module of nobody's": ({"task": "antigravity.fly"}, "is not registered: antigravity has not been imported"),
    "a broken module": ({"task": "tests.worker.broken.write"}, "is not registered"),
    "a module that leaves": ({"task": "tests.worker.leaving.write"}, "is not registered"),
    "a program": ({"task": "tests.__main__.main"}, "is not the dotted path of a task"),
    "nothing": ({"task": ""}, "is not the dotted path of a task"),
    "no path": ({"task": "write"}, "is not the dotted path of a task"),
    "no words": ({"task": "tests..write"}, "is not the dotted path of a task"),
    "sql": ({"task": "x.y'; drop table pgqueue_message; --"}, "is not the dotted path of a task"),
    "content is a text": ({"content": '"x"'}, NO_CALL),
    "content is null": ({"content": "null"}, NO_CALL),
    "content is a number": ({"content": "1e400"}, NO_CALL),
    "content is a list": ({"content": '["args", "kwargs"]'}, NO_CALL),
    "content is empty": ({"content": "{}"}, NO_CALL),
    "content lacks kwargs": ({"content": '{"args": []}'}, NO_CALL),
    "args is a text": ({"content": '{"args": "x", "kwargs": {}}'}, NO_CALL),
    "args is an object": ({"content": '{"args": {"x": 1}, "kwargs": {}}'}, NO_CALL),
    "kwargs is a list": ({"content": '{"args": [], "kwargs": ["word"]}'}, NO_CALL),
    "too many arguments": ({"content": '{"args": [1, 2, 3], "kwargs": {}}'}, "takes 1 positional argument but 3"),
    "unknown argument": ({"content": '{"args": [], "kwargs": {"self": 1}}'}, "unexpected keyword argument 'self'"),
    "a number too long": ({"content": f'{{"args": [{"9" * 5000}], "kwargs": {{}}}}'}, "4300|digits"),
    "a header too long": ({"headers": f'{{"x": {"9" * 5000}}}'}, "4300|digits"),
}


def test_a_malformed_message_fails_with_its_reason(start: Start, session: Session) -> None:
    ids = {name: insert(session, **columns) for name, (columns, _) in MALFORMED.items()}
    worker = start("-v", "0", "--threads", "1", ready=False, options={"UNKNOWN_TASK_SECONDS": 0})
    for name, (_, text) in MALFORMED.items():
        status, error = outcome(ids[name], name)
        assert (name, status) == (name, "failed")
        assert re.search(text, error), f"{name}: {error}"
    assert not Message.objects.exists()
    said = "UnknownTask: 'tests.support.site.tasks.nobody' is not a task: tests.support.site.tasks has no 'nobody'."
    assert said in worker.output
    of_unknown_tasks = worker.output.partition("InvalidContent")[0]
    assert "4711" not in of_unknown_tasks, "what such a message says is not quoted"
    lives_on(worker)


def test_only_a_task_of_a_module_that_is_being_imported_waits_for_the_import(
    start: Start, diary: Diary, session: Session
) -> None:
    importer = import_halfway.enqueue()
    worker = start("-v", "1", "--threads", "3")
    wait_until(lambda: diary.entries("halfway"), "the module is being imported")
    message_id = insert(session, task="tests.worker.halfway.half", content='{"args": [], "kwargs": {}}', max_attempts=5)
    wait_until(lambda: Message.objects.filter(pk=message_id, worker__isnull=False).exists(), "it is held")
    assert ended(write.enqueue("others go on")).status == "SUCCESSFUL"
    diary.allow("halfway")
    assert outcome(message_id, "half") == ("succeeded", "None")
    assert Attempt.objects.get(message_id=message_id).attempt == 1
    assert ended(importer).status == "SUCCESSFUL"
    lives_on(worker)


CURIOUS: dict[str, dict[str, Any]] = {
    "long ago": {"dequeue_at": -(2**63)},
    "no attempts": {"max_attempts": 0},
    "attempts used up": {"attempt": 7, "max_attempts": 3},
    "strange queue": {"queue": "\N{SNOWMAN} ' \" % \\ {}"},
    "queue in many words": {"queue": "q" * 200},
    "own channel": {"channel": "x"},
    "foreign headers": {"headers": '{"trace": ["a"]}'},
    "foreign state": {"state": "[1]"},
    "more content": {"content": '{"args": ["x"], "kwargs": {}, "more": 1}'},
    "lock of long ago": {"unlock_at": -(2**63), "worker": "nobody", "locked_at": "1900-01-01"},
    "made in the future": {"created_at": "9999-01-01"},
}


def test_an_unusual_message_runs(start: Start, session: Session) -> None:
    ids = {name: insert(session, **columns) for name, columns in CURIOUS.items()}
    worker = start("-v", "0", "--threads", "1", ready=False)
    for name, message_id in ids.items():
        assert (name, *outcome(message_id, name)) == (name, "succeeded", "None")
    lives_on(worker)


def outcome(message_id: int, name: str) -> tuple[str, str]:
    """Waits for the job's end and answers its status and its error.  Not the content, which Python may not like."""
    final = Attempt.objects.filter(message_id=message_id, final=True).values_list("status", "error_message")
    status, error = wait_until(final.first, f"{name}: the job ends") or ("", "")
    return status, str(error)


def insert(session: Session, **columns: Any) -> int:
    """Writes a message by hand."""
    row = {"task": WRITE, "content": CALL, "dequeue_at": 0, **columns}
    names, places = ", ".join(row), ", ".join("%s" for _ in row)
    value = session.value(f"insert into pgqueue_message ({names}) values ({places}) returning id", *row.values())
    return int(value)
