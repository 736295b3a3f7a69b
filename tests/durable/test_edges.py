"""The edges of durable tasks, from a task and from an async task: done as documented, or refused with the next step."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.durable import decide, emit
from django_pgqueue.exceptions import InvalidStep
from django_pgqueue.functions import Success
from django_pgqueue.models import Attempt, Event, Message, Step
from django_pgqueue.testing import clock, drain
from tests.durable import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.durable import DurableContext

pytestmark = pytest.mark.django_db


class Door:
    """A context by its methods for a task, or by those for an async task."""

    def __init__(self, context: DurableContext, *, is_async: bool) -> None:
        self.context = context
        self.is_async = is_async

    async def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        if self.is_async:
            return await getattr(self.context, f"a{method}")(*args, **options)
        return getattr(self.context, method)(*args, **options)


def run_through(awaitable: Any) -> Any:
    """Returns what a coroutine returns that never waits."""
    with pytest.raises(StopIteration) as stopped:
        awaitable.send(None)
    return stopped.value.value


@pytest.fixture(params=["task", "async task"])
def enqueue(request: pytest.FixtureRequest) -> Callable[[Any], AnyTaskResult]:
    """Enqueues a durable task that calls the code with its door."""

    def enqueue(code: Any) -> AnyTaskResult:
        if request.param == "task":
            tasks.CODE["code"] = lambda context: run_through(code(Door(context, is_async=False)))
            return tasks.run_code.enqueue("code")
        tasks.CODE["code"] = lambda context: code(Door(context, is_async=True))
        return tasks.arun_code.enqueue("code")

    return enqueue


def ended(result: AnyTaskResult, **options: Any) -> AnyTaskResult:
    drain(**options)
    result.refresh()
    return result


@contextlib.contextmanager
def statements() -> Iterator[list[str]]:
    said: list[str] = []

    def listen(execute: Any, sql: str, *rest: Any) -> Any:
        said.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(listen):
        yield said


def of(method: str, *args: Any, **options: Any) -> Any:
    """Code that calls one method."""

    async def code(door: Door) -> Any:
        return await door(method, *args, **options)

    return code


async def gathers_itself(door: Door) -> None:
    await door("gather", [door.context.message.id])


async def in_a_step(door: Door) -> None:
    context = door.context
    await door("step", "outer", lambda: context.step("inner", tasks.note, "one"))


async def twice(door: Door) -> None:
    for _ in range(2):
        await door("step", "one", tasks.note, "one")


def returning(value: Any) -> Any:
    return of("step", "one", lambda: value)


NAN, SELF = float("nan"), "is no child of the message"
NO_NAME = "cannot be the name of a"
REFUSED: dict[str, tuple[Any, str]] = {
    "an empty name": (of("step", "", tasks.note, "one"), f"'' {NO_NAME} step: names are text of 1 to 255 bytes"),
    "a name of 10 kB": (of("step", "n" * 10_000, tasks.note, "one"), f"{NO_NAME} step"),
    "NUL in a name": (of("step", "a\0b", tasks.note, "one"), f"{NO_NAME} step"),
    "a line break in a name": (of("step", "a\nb", tasks.note, "one"), rf"'a\nb' {NO_NAME} step"),
    "a line break in the name of an event": (of("wait_for_event", "a\nb"), rf"'a\nb' {NO_NAME}n event"),
    "a control character in the name of a budget": (of("spend", "a\x7f", 1, of=2), rf"'a\x7f' {NO_NAME} budget"),
    "half a character in a name": (of("step", "\ud800", tasks.note, "one"), f"{NO_NAME} step"),
    "a number as name": (of("step", 7, tasks.note, "one"), f"7 {NO_NAME} step"),
    "an empty name of a sleep": (of("sleep", "", tasks.HOUR), f"'' {NO_NAME} step"),
    "an empty name of an event": (of("wait_for_event", ""), f"'' {NO_NAME}n event"),
    "an empty name of an approval": (of("approval", ""), f"'' {NO_NAME} step"),
    "an empty name of a budget": (of("spend", "", 1, of=2), f"'' {NO_NAME} budget"),
    "a name twice": (twice, "The step 'one' is used twice in this run"),
    "NUL in a value": (returning("a\0b"), "contains the character NUL"),
    "a set": (returning({1}), "the result of the step 'one' is {1}"),
    "no number": (returning(NAN), "the result of the step 'one'"),
    "a datetime": (returning(dt.datetime(2030, 1, 1, tzinfo=dt.UTC)), "the result of the step 'one' is datetime"),
    "a step in a step": (in_a_step, "'inner' is inside of the step 'outer'"),
    "itself as child": (gathers_itself, SELF),
    "a child that cannot be": (of("gather", [2**63]), "9223372036854775808 is no child: pass what task.enqueue_in"),
    "too much": (of("spend", "tokens", Decimal("1e400000"), of=3), "Decimal('1E+400000'): it must be a number"),
    "less than nothing": (of("spend", "tokens", -1, of=3), "amount=-1 is below 0"),
    "seconds": (of("sleep", "nap", -1), "duration is -1: it must be a timedelta"),
    "seconds as time-out": (of("wait_for_event", "paid", 60), "timeout is 60: it must be a timedelta"),
    "a time without a zone": (
        of("sleep_until", "nap", dt.datetime(2030, 1, 1)),  # noqa: DTZ001 -- this is the mistake
        "when is datetime.datetime(2030, 1, 1, 0, 0), without a time zone: pass timezone.make_aware",
    ),
    "a day": (of("sleep_until", "nap", dt.date(2030, 1, 1)), "it must be a datetime with a time zone"),
    "half a permission": (of("approval", "go", "shop"), "to='shop' is not the name of a permission"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_cannot_be_is_refused_before_any_statement(enqueue: Any, mistake: str) -> None:
    code, expected = REFUSED[mistake]
    result = enqueue(code)
    with statements() as said:
        drain()
    result.refresh()
    [error] = result.errors
    assert expected in error.traceback
    assert tasks.calls == (["one"] if mistake == "a name twice" else [])
    written = [sql for sql in said if "pgqueue_step_record" in sql or "pgqueue_message_suspend" in sql]
    records = [one for one in Step.objects.all() if one.status != "failed"]
    assert len(records) == (1 if mistake == "a name twice" else 0)
    assert len(written) <= 1


@pytest.mark.parametrize(
    "duration", [-tasks.HOUR, dt.timedelta(0), dt.timedelta.min], ids=["below 0", "0", "the shortest"]
)
def test_a_sleep_of_nothing_is_over_at_once(enqueue: Any, duration: dt.timedelta) -> None:
    async def code(door: Door) -> int:
        await door("sleep", "nap", duration)
        return door.context.attempt

    assert ended(enqueue(code)).return_value == 2


def test_the_longest_sleep_is_one_that_no_clock_reaches(enqueue: Any) -> None:
    result = enqueue(of("sleep", "nap", dt.timedelta.max))
    drain()
    message = Message.objects.get(pk=result.id)
    assert (message.suspended_attempt, message.worker) == (1, None)
    assert Attempt.objects.get().status == "suspended"


def test_no_children_are_gathered_at_once(enqueue: Any) -> None:
    assert ended(enqueue(of("gather", []))).return_value == []


def test_a_value_of_a_megabyte_is_kept(enqueue: Any) -> None:
    large = "".join(f"{n:07}" for n in range(140_000))

    async def code(door: Door) -> bool:
        value = await door("step", "large", lambda: large)
        await door("sleep", "nap", dt.timedelta(0))
        return bool(value == large)

    assert ended(enqueue(code)).return_value is True


@pytest.mark.slow
def test_thousands_of_steps_are_a_statement_each_and_read_once(enqueue: Any, request: pytest.FixtureRequest) -> None:
    is_async = request.node.callspec.params["enqueue"] == "async task"
    many, begins = (1_000 if is_async else 10_000), []  # each step of a coroutine goes through two threads

    async def code(door: Door) -> int:
        begins.append(len(said))
        total = sum([await door("step", f"page-{n}", lambda n=n: n) for n in range(many)])
        begins.append(len(said))
        await door("sleep", "nap", dt.timedelta(0))
        return int(total)

    result = enqueue(code)
    with statements() as said:
        drain()
    result.refresh()
    assert result.errors == [], result.errors[0].traceback
    assert result.return_value == sum(range(many))
    first, second = (
        [sql for sql in said[begin:end] if "pgqueue_clock" not in sql]  # a worker has a clock of its own
        for begin, end in (begins[:2], begins[2:])
    )
    assert len(first) == many
    assert len([sql for sql in second if "pgqueue_step_load" in sql]) == len(second) == 1


ADD_CHILDREN = (
    "select m.id from pgqueue_message m where m.task = %s and pgqueue_child_add(%s, %s, m.id, %s) order by m.id"
)


@pytest.mark.once
def test_twenty_thousand_children_of_one_parent_end() -> None:
    """Where each is found by its own id.  A plan that goes through all of them for each takes half a minute."""
    many = 20_000
    with connection.cursor() as cursor:
        cursor.execute("set local statement_timeout = '10s'")

    def fan_out(context: DurableContext) -> list[int]:
        """As enqueue_in does for each, in two statements."""
        enqueue_many(tasks.quiet, range(many))
        message = context.message
        with connection.cursor() as cursor:
            cursor.execute(ADD_CHILDREN, [tasks.quiet.module_path, message.id, message.attempt, message.worker])
            return [child_id for (child_id,) in cursor.fetchall()]

    tasks.CODE["code"] = lambda context: sum(context.gather(context.step("fan out", fan_out, context, atomic=True)))
    result = tasks.run_code.enqueue("code")
    drain(limit=1)
    held = functions.message_dequeue(connection, queues=None, lock_ms=60_000, worker="w", tasks=True, limit=many)
    ends = [Success(id=message.id, attempt=message.attempt, result="1") for message in held]
    assert len(functions.message_complete(connection, ends, worker="w")) == many
    assert ended(result).return_value == many


def test_a_step_of_a_thread_that_outlives_its_task_is_refused(enqueue: Any) -> None:
    said: list[str] = []
    is_over = threading.Event()

    async def code(door: Door) -> None:
        def go_on() -> None:
            is_over.wait(30)
            try:
                run_through(Door(door.context, is_async=False)("step", "late", tasks.note, "late"))
            except InvalidStep as error:
                said.append(str(error))
            finally:
                connection.close()

        threads.append(threading.Thread(target=go_on))
        threads[0].start()

    threads: list[threading.Thread] = []
    ended(enqueue(code))
    is_over.set()
    threads[0].join(30)
    assert "'late' comes after the end of attempt 1" in said[0]
    assert tasks.calls == []


def test_an_emit_in_an_atomic_step_that_fails_has_not_happened(enqueue: Any) -> None:
    def emits_and_fails() -> None:
        emit("paid:7")
        raise tasks.Trouble

    ended(enqueue(of("step", "emit", emits_and_fails, atomic=True)))
    assert not Event.objects.exists()


def test_steps_that_are_renamed_removed_or_reordered_between_attempts(enqueue: Any) -> None:
    async def code(door: Door) -> list[str]:
        is_old = door.context.attempt == 1
        names = ["kept", "moved", "removed", "renamed"] if is_old else ["moved", "new name", "kept"]
        values = [await door("step", name, tasks.note, f"{name} of {door.context.attempt}") for name in names]
        await door("sleep", "nap", dt.timedelta(0))
        return values

    result = ended(enqueue(code))
    assert result.return_value == ["MOVED OF 1", "NEW NAME OF 2", "KEPT OF 1"]
    assert tasks.calls == ["kept of 1", "moved of 1", "removed of 1", "renamed of 1", "new name of 2"]
    assert set(Step.objects.filter(status="unasked").values_list("name", flat=True)) == {"removed", "renamed"}


def test_a_permission_that_does_not_exist_is_one_that_superusers_have(enqueue: Any) -> None:
    async def code(door: Door) -> bool:
        return bool(await door("approval", "go", "shop.nobody_has_this"))

    result = enqueue(code)
    drain()
    with pytest.raises(PermissionDenied, match="eve may not decide 'go'"):
        decide(result, "go", approved=True, user=User.objects.create_user("eve", is_staff=True))
    assert decide(result, "go", approved=True, user=User.objects.create_superuser("ada")) == "decided"
    assert ended(result).return_value is True


def test_an_atomic_step_of_a_task_that_fails_later_has_happened_once(enqueue: Any) -> None:
    async def code(door: Door) -> None:
        await door("step", "add", tasks.add_group, "tea", atomic=True)
        await door("sleep", "nap", dt.timedelta(0))
        raise tasks.Trouble

    ended(enqueue(code))
    assert Group.objects.filter(name="tea").count() == 1


def test_an_endless_loop_of_sleeps_stops_where_the_test_says(enqueue: Any) -> None:
    async def code(door: Door) -> None:
        number = 0
        while True:
            await door("sleep", f"nap-{(number := number + 1)}", tasks.HOUR)

    enqueue(code)
    with clock() as now:
        assert len(drain(clock=now, limit=4)) == 4
