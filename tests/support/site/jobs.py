"""The jobs of these tests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction

from django_pgqueue import control
from django_pgqueue.exceptions import AttemptLost, Retry
from django_pgqueue.tasks import Exponential, task
from tests.support.diary import MAX_WAIT_SECONDS, Diary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.tasks.context import PgQueueContext

    Context = PgQueueContext
    Step = dict[str, Any]


def at_once(exception: BaseException, task_result: Any) -> float:
    return 0


def create_group(name: str) -> None:
    """For jobs that run in the tests' own process: the app is not installed in those of workers."""
    from django.contrib.auth.models import Group

    Group.objects.create(name=name)


# Retries


def do(context: Context, step: Step) -> Any:
    """Does what a step says, and tells which attempt it was and what the one before had left."""
    match step:
        case {"defer": seconds}:
            context.defer(seconds, state=step.get("state"))
        case {"retry": seconds}:
            raise Retry(after=seconds, state=step.get("state"))
        case {"raise": name}:
            raise getattr(__import__("builtins"), name)(f"attempt {context.attempt}")
    return [context.attempt, context.state]


@task(takes_context=True, backoff=at_once)
def follow(context: Context, *steps: Step) -> Any:
    """Each attempt does the next step; the last one's answer is the job's."""
    return do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task(takes_context=True, backoff=at_once)
async def follow_async(context: Context, *steps: Step) -> Any:
    await asyncio.sleep(0)
    return do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task(takes_context=True, backoff=at_once, atomic=True)
def follow_atomically(context: Context, *steps: Step) -> Any:
    return do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task(takes_context=True, backoff=at_once, max_attempts=9, retry_on=(OSError,))
def retry_only_os_errors(context: Context, *steps: Step) -> Any:
    return do(context, steps[context.attempt - 1])


@task(takes_context=True, backoff=at_once, max_attempts=9, no_retry_on=(LookupError, ValueError))
def retry_all_but_bad_values(context: Context, *steps: Step) -> Any:
    return do(context, steps[context.attempt - 1])


@task(takes_context=True, backoff=at_once, max_attempts=9, retry_on=(OSError,), no_retry_on=(FileNotFoundError,))
def retry_only_some_os_errors(context: Context, *steps: Step) -> Any:
    return do(context, steps[context.attempt - 1])


@task(takes_context=True)
def defer_and_catch_all(context: Context) -> str:
    """Careful people write this around each step."""
    if context.attempt > 1:
        return "came back"
    try:
        context.defer(0)
    except Exception:  # noqa: BLE001
        return "swallowed"


@task(takes_context=True)
def defer_in_a_with_block(context: Context, name: str) -> str:
    if context.attempt == 1:
        with transaction.atomic():
            create_group(name=name)
            context.defer(0)
    return "came back"


@task(takes_context=True)
def retry_without_saying_when(context: Context) -> None:
    raise Retry("7.5")


@task(takes_context=True, backoff=at_once)
async def ask_from_children(context: Context, *steps: Step) -> Any:
    """In the first attempt each child of a group does its step: the first at once, the others when cancelled."""

    async def child(number: int, step: Step) -> None:
        if number:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(MAX_WAIT_SECONDS)
        if "children" in step:
            await group(step["children"])
        do(context, step)

    async def group(steps: Sequence[Step]) -> None:
        async with asyncio.TaskGroup() as children:
            for number, step in enumerate(steps):
                children.create_task(child(number, step))

    if context.attempt == 1:
        await group(steps)
    return [context.attempt, context.state]


@task(takes_context=True)
def look_back(context: Context, defers: int) -> Any:
    """Waits so often, and then tells what it knows of the attempts before."""
    if context.attempt <= defers:
        context.defer(0)
    return [len(context.task_result.worker_ids), context.task_result.errors]


@task(takes_context=True)
async def look_back_async(context: Context, defers: int) -> Any:
    await asyncio.sleep(0)
    return look_back.func(context, defers)


SEEN: list[tuple[bool, str, str]] = []


@task(takes_context=True, backoff=at_once)
def compare(context: Context, *steps: Step) -> None:
    """Compares its result with what others see of it."""
    mine, theirs = context.task_result, compare.get_result(context.task_result.id)
    SEEN.append((mine == theirs, repr(mine), repr(theirs)))
    do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task(takes_context=True, backoff=at_once)
async def compare_async(context: Context, *steps: Step) -> None:
    mine, theirs = context.task_result, await compare_async.aget_result(context.task_result.id)
    SEEN.append((mine == theirs, repr(mine), repr(theirs)))
    do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


# Atomic tasks


def write_effect(word: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into feature_effect (word) values (%s)", [word])


@task
def write(word: str) -> None:
    write_effect(word)


@task
def write_if_it_can(word: str) -> None:
    with contextlib.suppress(DatabaseError):
        write_effect(word)


@task(atomic=True)
def write_atomically(word: str) -> None:
    write_effect(word)


@task
async def write_async(word: str) -> None:
    await sync_to_async(write_effect)(word)


@task(atomic=True, takes_context=True)
def write_and_hold(context: Context, word: str, then: bool = True) -> None:  # noqa: FBT001, FBT002
    """Writes, enqueues, and waits until the test allows the end of this attempt."""
    write_effect(word)
    write.enqueue(f"{word}, enqueued")
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt, backend=connection.connection.info.backend_pid)
    diary.wait_for(f"{word}-{context.attempt}")
    if then:
        write_effect(f"{word}, second")


@task(takes_context=True, atomic=True, backoff=at_once)
def add_group(context: Context, name: str, *steps: Step) -> Any:
    """A row, a message, and then a step."""
    create_group(name=name)
    follow.enqueue(name)  # type: ignore[arg-type]
    return do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task(atomic=True)
def lose_another_message() -> None:
    raise AttemptLost


@task(atomic=True)
def add_groups_with_savepoints() -> None:
    create_group(name="outer")
    for name in ("inner", "taken back"):
        with transaction.atomic():
            create_group(name=name)
            follow.enqueue(name)  # type: ignore[arg-type]
            transaction.set_rollback(name == "taken back")


@task(atomic=True)
def add_a_group_twice(name: str) -> None:
    create_group(name=name)
    create_group(name=name)


@task(atomic=True)
def swallow_an_error_of_the_database(name: str) -> str:
    create_group(name=name)
    try:
        create_group(name=name)
    except DatabaseError:
        return "never mind"
    return "fine"


@task(atomic=True)
def swallow_it_behind_a_savepoint(name: str) -> str:
    create_group(name=name)
    try:
        with transaction.atomic():
            create_group(name=name)
    except DatabaseError:
        return "never mind"
    return "fine"


@task(atomic=True)
def give_up_the_transaction(name: str) -> None:
    create_group(name=name)
    transaction.set_rollback(True)


@task
def return_an_object(name: str) -> object:
    create_group(name=name)
    return object()


@task(atomic=True)
def return_what_is_no_json(name: str) -> object:
    create_group(name=name)
    return object()


@task(atomic=True)
def break_a_deferred_constraint() -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into feature_child (parent) values (1)")


@task(atomic=True)
def fail_after_the_commit(word: str, *, leave: bool = False) -> str:
    def complain() -> None:
        raise (SystemExit if leave else OSError)("the mail server is away")

    write_effect(word)
    transaction.on_commit(complain)
    return word


@task(atomic=True)
def lose_the_connection_at_the_commit(word: str) -> None:
    write_effect(word)
    transaction.on_commit(lambda: connection.cursor().execute("select pg_terminate_backend(pg_backend_pid())"))


@task(atomic=True)
def hold_after_the_commit(word: str) -> None:
    diary = Diary.of_this_process()

    def hold() -> None:
        diary.write(word)
        diary.wait_for(word)

    transaction.on_commit(hold)


@task(atomic=True, takes_context=True)
def enqueue_itself_again(context: Context) -> str:
    return enqueue_itself_again.using(unique_key="itself", on_conflict="replace").enqueue().id


# Unique messages


@task(unique_key=True)
def once_for_the_same_call(*args: Any, **kwargs: Any) -> None:
    """At most one waits or runs for each set of arguments."""


@task(unique_key=True, takes_context=True)
def once_for_the_same_order(context: Any, order_id: int, copies: int = 1, *, paper: str = "A5") -> None:
    """At most one waits or runs for each order, copies and paper."""


@task(unique_key="report")
def once(*args: Any) -> list[Any]:
    return list(args)


@task(unique_key=lambda order_id, *_, **__: f"order-{order_id}")
def once_an_order(order_id: int, reason: str = "") -> str:
    return reason


@task(unique_key="look again", unique_until="started", max_attempts=3, backoff=at_once, takes_context=True)
def look_again(context: Context, *steps: Step) -> Any:
    return do(context, steps[context.attempt - 1] if context.attempt <= len(steps) else {})


@task
def with_key() -> None:
    """Its key is what a callable makes."""


def task_with_key_of(made: Any) -> Any:
    return with_key.using(unique_key=lambda: made)


@task(unique_key=lambda: (_ for _ in ()).throw(LookupError("no such order")))
def with_a_key_that_can_not_be_made() -> None:
    """Its key is an error."""


# Cancelling


@task(unique_key="held")
def hold_the_key(word: str) -> None:
    diary = Diary.of_this_process()
    diary.write(word)
    diary.wait_for(word)


@task(takes_context=True)
def wait_for_a_request(context: Context, then: str = "raise_if_cancelled") -> str:
    """Looks often whether somebody wants it to stop, and then does what it was told."""
    diary = Diary.of_this_process()
    diary.write("runs", attempt=context.attempt)
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while not context.cancelled:
        assert time.monotonic() < deadline, "nobody asked"
        time.sleep(0.005)
    diary.write("asked")
    match then:
        case "raise_if_cancelled":
            context.raise_if_cancelled()
        case "error":
            raise OSError("while it stopped")
        case "defer":
            context.defer(0)
        case "retry":
            raise Retry(after=0)
    return "done all the same"


@task(atomic=True, takes_context=True)
def write_and_wait_for_a_request(context: Context, word: str) -> str:
    write_effect(word)
    return wait_for_a_request.func(context)


@task(takes_context=True)
def cancel_yourself(context: Context) -> None:
    assert control.cancel(context.task_result) == "requested"
    context.raise_if_cancelled()


async def allowed(word: str) -> None:
    diary = Diary.of_this_process()
    diary.write(word)
    while not diary.is_allowed(word):  # noqa: ASYNC110 -- what it waits for is outside
        await asyncio.sleep(0.01)


@task
async def wait_until_allowed(word: str) -> None:
    await allowed(word)


@task
async def wait_until_allowed_twice(first: str, second: str) -> None:
    await allowed(first)
    await allowed(second)


@task(backoff=Exponential(base=0.01))
async def fail_when_allowed(word: str) -> None:
    await allowed(word)
    raise OSError(word)


@task
async def ask_again_at_once() -> None:
    raise Retry(after=0)


@task(max_attempts=5, backoff=lambda _, result: 0.01 * len(result.errors))
async def fail_by_its_errors(word: str) -> None:
    await allowed(word)
    raise OSError(word)


@task
async def wait_for_ever(word: str = "runs") -> str:
    """Stops when it is cancelled, and says so."""
    diary = Diary.of_this_process()
    diary.write(word)
    try:
        await asyncio.sleep(MAX_WAIT_SECONDS)
    except asyncio.CancelledError:
        diary.write(f"{word}, cancelled")
        raise
    return "nobody asked"


@task
async def will_not_be_cancelled() -> str:
    diary = Diary.of_this_process()
    diary.write("runs")
    try:
        await asyncio.sleep(MAX_WAIT_SECONDS)
    except asyncio.CancelledError:
        return "done all the same"
    return "nobody asked"


@task
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@task(takes_context=True)
def stop_without_being_asked(context: Context) -> bool:
    context.raise_if_cancelled()
    return context.cancelled


# Progress


@task(takes_context=True)
def say(context: Context, *words: Any) -> None:
    for fraction, text in words:
        context.progress(fraction, text)
    diary = Diary.of_this_process()
    diary.write("said")
    diary.wait_for("end")


@task(takes_context=True)
async def say_async(context: Context, fraction: float) -> bool:
    context.progress(fraction, "from a coroutine")
    await asyncio.sleep(0)
    return context.cancelled


@task(takes_context=True)
def say_something_often(context: Context, seconds: float) -> int:
    """Thousands of words."""
    begun, words = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < seconds:
        context.progress(elapsed / seconds, f"word {words}")
        words += 1
    return words


@task(takes_context=True)
def say_expression(context: Context, expression: str) -> None:
    context.progress(0.5, eval(expression))  # noqa: S307


@task(takes_context=True)
def say_when_allowed(context: Context) -> None:
    """Each attempt says its own number when the test allows it."""
    diary = Diary.of_this_process()
    diary.write(f"attempt {context.attempt}")
    diary.wait_for(f"say-{context.attempt}")
    context.progress(context.attempt / 10, f"attempt {context.attempt}")
    diary.write(f"said {context.attempt}")
    diary.wait_for("end")


@task(atomic=True, takes_context=True)
def say_in_a_transaction(context: Context) -> None:
    context.progress(0.5, "in a transaction")
    Diary.of_this_process().wait_for("end")


@task(takes_context=True)
async def say_in_a_coroutine(context: Context) -> None:
    context.progress(0.5, "in a coroutine")
    while not Diary.of_this_process().is_allowed("end"):  # noqa: ASYNC110 -- what it waits for is outside
        await asyncio.sleep(0.01)


@task(takes_context=True)
def say_fraction(context: Context, expression: str) -> None:
    context.progress(eval(expression))  # noqa: S307


@task(takes_context=True, max_attempts=2, backoff=at_once)
def say_and_fail(context: Context) -> None:
    """The first attempt fails, the second one waits."""
    diary = Diary.of_this_process()
    if context.attempt == 1:
        context.progress(0.5, "half")
        diary.write("said")
        diary.wait_for("fail")
        raise OSError("no network")
    diary.write("again")
    diary.wait_for("end")


# Coroutines


@task
async def read_slowly(word: str) -> int:
    """Stands still in the middle of what it reads from the server, until the test allows it to go on."""
    from django_pgqueue.models import Worker

    number = 0
    async for _ in Worker.objects.order_by("id").aiterator(chunk_size=10):
        number += 1
        if number == 1:
            await allowed(word)
    return number


# Connections


@task
def which_session() -> int:
    """The server process that its queries go to."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
async def which_session_async() -> int:
    return await sync_to_async(which_session.func)()
