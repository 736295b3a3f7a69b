"""Many jobs at once: all of them or none, in order, without holding them in memory, and told of by position."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import pty
import subprocess
import sys
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from django_pgqueue import testing
from django_pgqueue.backend import Call, bulk, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import ContentTooLarge, DuplicateMessage, InvalidContent, InvalidMessage, PgQueueError
from django_pgqueue.models import Message
from django_pgqueue.tasks import task
from tests.support.fixtures.workers import rows
from tests.support.processes import ROOT
from tests.support.scheduled.tasks import send
from tests.support.site.tasks import nothing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import DjangoAssertNumQueries


__all__ = ["rows"]  # a fixture that others need

SEND = send.module_path


@task(unique_key=lambda name: name)
def once(name: str) -> None: ...


@task(unique_key=True, on_conflict="raise", unique_until="started")
def strictly_once(name: str, *, colour: str = "") -> None: ...


def unbound() -> None: ...


renamed = task(unbound)


def contents() -> list[Any]:
    return list(Message.objects.order_by("pk").values_list("content", flat=True))


def numbers() -> list[Any]:
    """The first argument of each message, by id."""
    return [content["args"][0] for content in contents()]


# Items and columns


def test_an_item_is_an_argument_a_tuple_a_dictionary_or_a_call(db: None) -> None:
    items = ["Ada", ("Grace",), {"to": "Joan"}, Call(args=("Mary",), kwargs={"polite": False}), ["a", "list"]]
    assert enqueue_many(send, items) == 5
    assert contents() == [
        {"args": ["Ada"], "kwargs": {}},
        {"args": ["Grace"], "kwargs": {}},
        {"args": [], "kwargs": {"to": "Joan"}},
        {"args": ["Mary"], "kwargs": {"polite": False}},
        {"args": [["a", "list"]], "kwargs": {}},
    ]
    assert [result.return_value for result in testing.drain()] == ["Ada", "Grace", "Joan", "Mary", ["a", "list"]]


@pytest.mark.parametrize("calls", [["x"], [Call(args=("x",))]], ids=["plain", "Call"])
def test_a_message_is_the_same_row_that_enqueue_makes(db: None, calls: list[Any]) -> None:
    columns = [field.attname for field in Message._meta.fields if field.attname != "id"]
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    other = send.using(run_after=at, priority=-3, queue_name="slow", max_attempts=9, max_lost=3, channel="acme")
    waiting = send.using(after=[nothing.enqueue()], after_policy="succeeded")
    for one in (send, other, waiting):
        one.enqueue("x")
        enqueue_many(one, calls)
        by_enqueue, by_many = Message.objects.order_by("-pk").values(*columns)[:2]
        assert by_enqueue == by_many


def test_each_call_may_have_its_own_priority_time_queue_and_channel(db: None) -> None:
    at = dt.datetime(2030, 5, 5, 12, tzinfo=dt.UTC)
    with testing.clock() as clock:
        enqueue_many(
            send.using(run_after=dt.timedelta(days=9)),
            [
                Call(("a",), priority=100),
                Call(("b",), run_after=at),
                Call(("c",), run_after=dt.timedelta(hours=1)),
                Call(("d",), queue_name="slow", channel="acme"),
                "e",
            ],
        )
        now = clock.at.replace(microsecond=clock.at.microsecond // 1000 * 1000)
    found = list(Message.objects.order_by("pk").values_list("priority", "dequeue_at", "queue", "channel"))
    late = now + dt.timedelta(days=9)
    assert found == [
        (100, late, "mail", None),
        (7, at, "mail", None),
        (7, now + dt.timedelta(hours=1), "mail", None),
        (7, late, "slow", "acme"),
        (7, late, "mail", None),
    ]


@pytest.fixture
def five_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MESSAGES_A_STATEMENT", 5)


@pytest.mark.usefixtures("db", "five_a_statement")
def test_ids_are_in_the_order_of_the_calls() -> None:
    mixed = (n if n % 4 else Call((n,)) for n in range(17))
    assert enqueue_many(nothing, mixed) == 17
    assert numbers() == list(range(17))
    assert Message.objects.values("dequeue_at").distinct().count() == 1, "so they are first in, first out"


def test_an_empty_iterable_enqueues_nothing(db: None) -> None:
    assert enqueue_many(send, []) == 0
    assert enqueue_many(send, iter(())) == 0
    assert not Message.objects.exists()


@pytest.mark.usefixtures("db", "five_a_statement")
def test_many_cost_a_few_statements_and_each_reports_its_progress(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    told: list[int] = []
    with django_assert_num_queries(6):  # a savepoint, the time, three statements, the savepoint's release
        enqueue_many(nothing, range(11), on_progress=told.append)
    assert told == [5, 10, 11]


# All or none


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise RuntimeError("the source broke")


@pytest.mark.usefixtures("transactional_db", "five_a_statement")
@pytest.mark.parametrize("count", [3, 8])
def test_outside_of_a_transaction_all_or_none_are_enqueued(count: int) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        enqueue_many(nothing, failing(count))
    assert not Message.objects.exists()
    assert connection.get_autocommit()
    assert enqueue_many(nothing, range(count)) == count
    assert Message.objects.count() == count


@pytest.mark.usefixtures("db", "five_a_statement")
def test_inside_of_a_transaction_an_error_undoes_only_this_bulk() -> None:
    with transaction.atomic():
        send.enqueue("before")
        with pytest.raises(RuntimeError):
            enqueue_many(nothing, failing(8))
        enqueue_many(send, ["after"])
    assert numbers() == ["before", "after"]


# Size


def test_a_generator_is_read_a_statement_at_a_time_and_takes_a_few_megabytes(transactional_db: None) -> None:
    produced, peaks = [0], list[int]()

    def source() -> Iterator[int]:
        for number in range(30_000):
            # In the middle of it: to trace all of them would take long.
            if number == 2 * bulk.MESSAGES_A_STATEMENT:
                tracemalloc.start()
            if number == 5 * bulk.MESSAGES_A_STATEMENT:
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            produced[0] += 1
            yield number

    ahead: list[int] = []
    assert enqueue_many(nothing, source(), on_progress=lambda done: ahead.append(produced[0] - done)) == 30_000
    assert peaks[0] < 8 * 2**20
    assert set(ahead) == {0}, "nothing is read ahead of its statement"
    assert Message.objects.count() == Message.objects.values("content__args").distinct().count() == 30_000


def test_large_contents_fill_a_statement_as_well(db: None) -> None:
    """Five thousand of them would be more than a jsonb can hold, and more than anybody has in memory."""
    large, done = "x" * 500_000, list[int]()
    tracemalloc.start()
    try:
        enqueue_many(send, (f"{n}{large}" for n in range(40)), on_progress=done.append)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(later - earlier for earlier, later in zip([0, *done], done, strict=False)) <= 8
    assert done[-1] == 40
    assert peak < 12 * bulk.CHARACTERS_A_STATEMENT


# Unique keys


def test_unique_keys_are_kept(db: None) -> None:
    once.enqueue("b")
    assert enqueue_many(once, ["c", "b", "a", "c"]) == 4
    assert sorted(numbers()) == ["a", "b", "c"]
    assert enqueue_many(once, [Call(("a",), priority=5), "d"]) == 2
    assert sorted(numbers()) == ["a", "b", "c", "d"]


def test_on_conflict_raise_names_the_call_and_enqueues_nothing(db: None) -> None:
    held = strictly_once.enqueue("b")
    with pytest.raises(DuplicateMessage, match=rf"^calls\[2\]: .*message {held.id} holds") as caught:
        enqueue_many(strictly_once, ["a", "c", "b"])
    assert caught.value.existing_id == int(held.id)
    assert numbers() == ["b"]
    with pytest.raises(DuplicateMessage, match=r"^calls\[1\]"):
        enqueue_many(strictly_once, ["a", "a"])
    assert enqueue_many(strictly_once, ["x", Call(("y",), {"colour": "red"}, priority=3, channel="acme")]) == 2
    [message] = Message.objects.filter(channel="acme")
    assert (message.priority, message.unique_until_started, message.queue) == (3, True, "default")


# Errors


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (float("nan"), InvalidContent, r"^calls\[2\]\['args'\]\[0\] is nan"),
        ("a\0b", InvalidContent, r"^calls\[2\]\['args'\]\[0\] contains the character NUL"),
        ({1: 2}, InvalidContent, r"^calls\[2\]\['kwargs'\] has the key 1"),
        (Call(("x",), {"at": dt.date(2026, 1, 1)}), InvalidContent, r"^calls\[2\]\['kwargs'\]\['at'\]"),
        ("x" * 2_000_000, ContentTooLarge, r"^calls\[2\] has 2,000,0"),
        (Call("abc"), InvalidMessage, r"^calls\[2\]: args must be a list or a tuple, not 'abc'"),
        (Call((), [1]), InvalidMessage, r"^calls\[2\]: kwargs must be a dictionary, not \[1\]"),  # type: ignore[arg-type]
        (Call(("x",), priority=101), InvalidMessage, r"^calls\[2\]: .*priority"),
        (Call(("x",), priority="high"), InvalidMessage, r"^calls\[2\]: .*priority"),  # type: ignore[arg-type]
        (Call(("x",), queue_name="q" * 300), InvalidMessage, r"^calls\[2\]: .*name of a queue"),
        (Call(("x",), channel=""), InvalidMessage, r"^calls\[2\]: '' cannot be the name of a channel"),
        (Call(("x",), run_after=dt.datetime(2030, 1, 1)), InvalidMessage, r"^calls\[2\]: .*aware"),  # noqa: DTZ001
        (Call(("x",), run_after=dt.timedelta.max), InvalidMessage, r"^calls\[2\]: .*beyond the years 1 to 9999"),
        (Call((float("inf"),), where="row 9"), InvalidContent, r"^row 9\['args'\]"),
        (Call(("x",), priority=101, where="row 9"), InvalidMessage, r"^row 9: .*priority"),
    ],
    ids=lambda value: None if isinstance(value, type) else repr(value)[:40],
)
def test_an_error_names_the_call_and_nothing_is_enqueued(
    db: None, item: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        enqueue_many(send, ["fine", "as well", item, "never reached"])
    assert not Message.objects.exists()
    assert enqueue_many(send, ["the transaction goes on"]) == 1


def test_a_delay_beyond_the_calendar_is_refused(db: None) -> None:
    with pytest.raises(InvalidMessage, match=r"run_after=.*beyond the years 1 to 9999"):
        enqueue_many(send.using(run_after=dt.timedelta.max), ["fine"])
    assert not Message.objects.exists()


def test_the_error_of_an_invalid_key_names_the_call(db: None) -> None:
    with pytest.raises(InvalidMessage, match=r"^calls\[1\]: .*positional argument"):
        enqueue_many(once, ["fine", ("one", "too many")])
    with pytest.raises(InvalidMessage, match=r"^calls\[0\]: The unique_key of .* is 5"):
        enqueue_many(once, [5])
    assert not Message.objects.exists()


def test_a_task_that_no_worker_could_find_is_refused(db: None) -> None:
    with pytest.raises(InvalidTask, match="no worker can find it"):
        enqueue_many(renamed, [()])


def test_a_queue_that_is_not_in_the_settings_is_refused(db: None, settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default"]}}
    with pytest.raises(InvalidMessage, match=r"^calls\[1\]: .*slow"):
        enqueue_many(nothing, [(), Call(queue_name="slow")])
    assert not Message.objects.exists()


def test_a_function_that_is_no_task_is_refused() -> None:
    with pytest.raises(InvalidTask, match=r"^<built-in function len> is no task: declare it with @task\.$"):
        enqueue_many(len, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["tea", b"tea", {"name": "tea"}], ids=repr)
def test_a_single_item_is_no_list_of_them(call: Any) -> None:
    with pytest.raises(TypeError, match=r"Each part of a \w+ would be a job: put it into a list\."):
        enqueue_many(nothing, call)


def test_a_backend_of_another_package_is_refused(settings: Any) -> None:
    dummy = f"{'django_tasks' if 'django_tasks' in settings.INSTALLED_APPS else 'django.tasks'}.backends.dummy"
    settings.TASKS = {"default": {"BACKEND": f"{dummy}.DummyBackend", "QUEUES": []}}
    with pytest.raises(PgQueueError, match="DummyBackend, which keeps no jobs in PostgreSQL"):
        enqueue_many(nothing, [()])


# manage.py qenqueue


def qenqueue(*arguments: str) -> str:
    output = io.StringIO()
    call_command("qenqueue", SEND, *arguments, stdout=output, no_color=True)
    return output.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


def test_a_file_is_a_job_a_line(db: None, file: Path) -> None:
    with file.open("w", encoding="utf-8-sig", newline="\r\n") as lines:
        lines.write('["Ada"]\n\n{"kwargs": {"to": "Žofie"}, "priority": -5, "channel": "acme"}\n')
        lines.write('{"args": ["Joan"], "run_after": "2030-05-05T12:00:00Z", "queue": "slow"}')
    assert qenqueue("--from", str(file)) == f"enqueued 3 x {SEND}\n"
    assert contents() == [
        {"args": ["Ada"], "kwargs": {}},
        {"args": [], "kwargs": {"to": "Žofie"}},
        {"args": ["Joan"], "kwargs": {}},
    ]
    columns = list(Message.objects.order_by("pk").values_list("queue", "priority", "channel"))
    assert columns == [("mail", 7, None), ("mail", -5, "acme"), ("slow", 7, None)]
    assert Message.objects.get(queue="slow").dequeue_at == dt.datetime(2030, 5, 5, 12, tzinfo=dt.UTC)


def test_durations_count_from_now_and_quiet_prints_nothing(db: None, file: Path) -> None:
    file.write_text('{"args": ["a"], "run_after": "PT90M"}\n{"args": ["b"], "run_after": "0"}\n')
    assert qenqueue("--from", str(file), "-v", "0") == ""
    waits = [message.dequeue_at - message.created_at for message in Message.objects.order_by("pk")]
    assert [round(wait / dt.timedelta(minutes=1)) for wait in waits] == [90, 0]


def test_a_single_job_comes_from_the_command_line(db: None) -> None:
    assert qenqueue("--args", '["Ada"]', "--kwargs", '{"polite": false}') == f"enqueued 1 x {SEND}\n"
    assert contents() == [{"args": ["Ada"], "kwargs": {"polite": False}}]


@pytest.mark.parametrize("flag", [("--args", '["Ada"]'), ("--kwargs", "{}")], ids="".join)
def test_a_file_and_a_single_job_are_one_too_many(db: None, file: Path, flag: tuple[str, str]) -> None:
    file.write_text('["Joan"]\n')
    with pytest.raises(CommandError, match="use only one of them"):
        qenqueue("--from", str(file), *flag)
    assert not Message.objects.exists()


BAD_LINES = {
    '["unfinished': "line 2 is not JSON",
    "5": "line 2 is neither a JSON array nor an object: 5",
    '{"arguments": []}': "line 2 has the unknown key 'arguments'. The keys are args, kwargs, priority",
    '{"args": "Ada"}': "line 2: args must be a list or a tuple, not 'Ada'",
    "[NaN]": "line 2['args'][0] is nan",
    '{"args": ["a"], "run_after": "soon"}': "line 2: run_after 'soon' is neither",
    '{"args": ["a"], "run_after": 5}': "line 2: run_after 5 is neither",
    '{"args": ["a"], "run_after": "2026-13-01T00:00Z"}': "line 2: run_after '2026-13-01T00:00Z' is neither",
    '{"args": ["a"], "run_after": "2026-12-01T00:00"}': "line 2: run_after must be",
    "[" * 100_000: "line 2 is not JSON",
}


@pytest.mark.parametrize(("line", "words"), BAD_LINES.items(), ids=lambda text: text[:30])
def test_a_wrong_line_is_named_and_nothing_is_enqueued(db: None, file: Path, line: str, words: str) -> None:
    file.write_text(f'["fine"]\n{line}\n["never reached"]\n')
    with pytest.raises(CommandError) as caught:
        qenqueue("--from", str(file))
    assert str(caught.value).startswith(f"Nothing was enqueued. {words}")
    assert not Message.objects.exists()


def test_a_line_that_is_not_utf_8_is_named(db: None, file: Path) -> None:
    file.write_bytes(b'["fine"]\n' * 2000 + b'["\xff"]\n')
    with pytest.raises(CommandError, match=r"Nothing was enqueued\. line 2001 is not UTF-8"):
        qenqueue("--from", str(file))


def test_a_file_that_is_not_there_is_named(db: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"'nowhere\.jsonl' cannot be read: No such file"):
        qenqueue("--from", "nowhere.jsonl")
    with pytest.raises(CommandError, match="cannot be read: Is a directory"):
        qenqueue("--from", str(tmp_path))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("send", "'send' is not the dotted path of a task"),
        ("tests.support.scheduled.tasks.no", "is not a task: tests.support.scheduled.tasks has no 'no'"),
        ("tests.support.scheduled.tasks.SCHEDULES", "has a str of that name. Declare it with @task"),
        ("nowhere.tasks.send", "is not registered: nowhere.tasks has not been imported"),
    ],
)
def test_a_task_that_is_not_there_is_named(db: None, path: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"Nothing was enqueued. .*{words}"):
        call_command("qenqueue", path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--args", "Ada"], "--args is not JSON"),
        (["--kwargs", "{"], "--kwargs is not JSON"),
        (["--args", '{"to": 1}'], "--args and --kwargs: args must be a list"),
        (["--args", '[1], "priority": 9'], "--args is not JSON"),
        (["--args", "[1, 2, 3]"], r"--args and --kwargs: .* with these arguments: too many positional arguments\.$"),
    ],
)
def test_a_wrong_argument_is_named(db: None, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=f"Nothing was enqueued. {words}"):
        qenqueue(*arguments)


# The same as a program


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "django", "qenqueue", SEND, *arguments]


@pytest.fixture
def variables(environment: dict[str, str]) -> dict[str, str]:
    return {**environment, "DJANGO_SETTINGS_MODULE": "tests.support.scheduled.settings"}


def test_standard_input(variables: dict[str, str]) -> None:
    lines = "".join(f"{json.dumps([f'ž{n}'])}\n" for n in range(3))
    done = subprocess.run(
        program("--from", "-"), input=lines.encode(), env=variables, cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"enqueued 3 x {SEND}\n", b"")
    assert numbers() == ["ž0", "ž1", "ž2"]


def test_a_terminal_shows_a_progress_bar(variables: dict[str, str], file: Path) -> None:
    file.write_text("".join(f'["{n}"]\n' for n in range(1000)))
    ours, theirs = pty.openpty()
    shown = bytearray()

    def look() -> None:
        while True:
            try:
                some = os.read(ours, 4096)
            except OSError:  # the other end is closed
                return
            shown.extend(some)

    looker = threading.Thread(target=look)
    looker.start()
    process = subprocess.run(
        program("--from", str(file)), stderr=theirs, stdout=subprocess.PIPE,
        env=variables | {"TERM": "xterm-256color", "COLUMNS": "80"}, cwd=ROOT, check=False,
    )  # fmt: skip
    os.close(theirs)
    looker.join()
    os.close(ours)
    assert process.stdout.decode() == f"enqueued 1,000 x {SEND}\n"
    assert "enqueuing" in shown.decode()
    assert "100%" in shown.decode()
    assert Message.objects.count() == 1000
