"""Steps: their records, and what is repeated."""

from __future__ import annotations

import contextlib
import enum
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidStep
from django_pgqueue.models import Attempt, Message, Step
from django_pgqueue.tasks import task
from django_pgqueue.testing import clock, drain
from tests.durable import tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import AnyTaskResult
    from django_pgqueue.durable import DurableContext

pytestmark = pytest.mark.django_db


def run(code: Callable[[DurableContext], Any]) -> AnyTaskResult:
    """Runs a durable task that calls ``code``, and returns its result."""
    tasks.CODE["code"] = code
    result = tasks.run_code.enqueue("code")
    drain()
    result.refresh()
    return result


def error_of(code: Callable[[DurableContext], Any]) -> str:
    """Returns the error with which ``code`` ends its task."""
    [error] = run(code).errors
    return error.traceback


def test_a_later_attempt_goes_on_where_the_last_one_ended() -> None:
    result = tasks.three_steps.enqueue(fail_in=2)
    drain()
    result.refresh()
    assert result.return_value == ["ONE", Group.objects.get().pk, "THREE"]
    assert tasks.calls == ["one", "three"]
    assert list(Step.objects.order_by("finished_at").values_list("name", "kind", "status", "attempt")) == [
        ("first", "step", "done", 1),
        ("second", "atomic", "done", 1),
        ("third", "step", "done", 3),
    ]


def test_a_first_attempt_reads_no_records() -> None:
    said: list[str] = []

    def listen(execute: Any, sql: str, *rest: Any) -> Any:
        said.append(sql)
        return execute(sql, *rest)

    tasks.three_steps.enqueue()
    with connection.execute_wrapper(listen):
        drain()
    assert sum("pgqueue_step_record" in sql for sql in said) == 3
    assert not any("pgqueue_step_load" in sql for sql in said)


def test_a_step_that_raises_is_recorded_as_tried_and_an_atomic_one_writes_nothing() -> None:
    error = error_of(lambda context: context.step("add", tasks.add_group_and_fail, "tea", atomic=True))
    assert "Trouble: tea" in error
    assert not Group.objects.exists()
    [step] = Step.objects.all()
    assert (step.status, step.error) == ("failed", "tests.durable.tasks.Trouble: tea")


@pytest.mark.django_db(transaction=True)  # hooks run after a real commit
def test_a_hook_of_an_atomic_step_that_raises_runs_once_and_the_step_is_done() -> None:
    def hook() -> None:
        tasks.note("hook")
        raise tasks.Trouble

    def add() -> str:
        transaction.on_commit(hook)
        return tasks.note("add")

    tasks.CODE["code"] = lambda context: context.step("add", add, atomic=True)
    result = tasks.run_code.using(max_attempts=2).enqueue("code")
    drain()
    Message.objects.update(dequeue_at=0, in_line=True)
    drain()
    result.refresh()
    assert result.return_value == "ADD"
    assert tasks.calls == ["add", "hook"]
    assert ["Trouble" in error.traceback for error in result.errors] == [True]
    assert set(Step.objects.values_list("name", "status", "attempt")) == {("add", "done", 1), ("add", "failed", 1)}


def meet_another_transaction() -> None:
    with connection.cursor() as cursor:
        cursor.execute("do $$ begin raise exception 'they met' using errcode = '40001'; end $$")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("conflicts", "calls"), [(3, 4), (4, 4)])
def test_an_atomic_step_begins_anew_after_a_conflict_with_another_transaction(conflicts: int, calls: int) -> None:
    def add() -> str:
        tasks.note("add")
        Group.objects.create(name=f"group {len(tasks.calls)}")
        if len(tasks.calls) <= conflicts:
            meet_another_transaction()
        return "added"

    result = run(lambda context: context.step("add", add, atomic=True))
    assert len(tasks.calls) == calls
    assert Group.objects.count() == (conflicts < calls)
    assert [attempt.status for attempt in Attempt.objects.all()] == ["succeeded" if conflicts < calls else "failed"]
    assert result.errors == [] or "they met" in result.errors[0].traceback


@pytest.mark.django_db(transaction=True)
def test_an_atomic_step_does_not_begin_anew_after_a_conflict_in_a_hook_of_it() -> None:
    def add() -> str:
        transaction.on_commit(meet_another_transaction)
        return tasks.note("add")

    assert "they met" in error_of(lambda context: context.step("add", add, atomic=True))
    assert tasks.calls == ["add"]


def test_a_decorated_function_is_a_step() -> None:
    def code(context: DurableContext) -> Any:
        @context.step("charge")
        def charge() -> str:
            return tasks.note("charge")

        return charge

    assert run(code).return_value == "CHARGE"


def test_values_are_the_same_in_the_attempt_that_computes_them() -> None:
    pair: Any = (1, 2)
    assert run(lambda context: context.step("pair", lambda: pair) == [1, 2]).return_value is True


class Colour(enum.StrEnum):
    """Text that prints itself, and not its member."""

    RED = "red"


SHUFFLED = {"zebra": 1, "ant": [-0.0, 1e22, Colour.RED], "ä": True, "b": {"y": 1, "x": 2}}


def test_a_value_has_the_order_and_the_types_of_its_record_at_once() -> None:
    seen = []

    def code(context: DurableContext) -> dict[str, int]:
        value = context.step("value", lambda: SHUFFLED)
        seen.append(repr(value))
        children = {name: tasks.double.enqueue_in(context, len(name)) for name in value}
        return dict(zip(children, context.gather(children.values()), strict=True))

    assert run(code).return_value == {"zebra": 10, "ant": 6, "ä": 2, "b": 2}
    assert seen == ["{'b': {'x': 2, 'y': 1}, 'ä': True, 'ant': [0.0, 10000000000000000000000, 'red'], 'zebra': 1}"] * 2


def test_a_large_value_is_read_when_it_is_asked_for() -> None:
    large = "".join(f"{n:06}" for n in range(170_000))
    attempts = []

    def code(context: DurableContext) -> int:
        attempts.append(context.attempt)
        value = context.step("large", lambda: large)
        assert value == large
        if context.attempt == 1:
            context.sleep("a moment", tasks.HOUR * 0)
        return len(value)

    assert run(code).return_value == len(large)
    assert attempts == [1, 2]


def test_the_key_is_the_same_in_every_attempt_and_another_for_another_name() -> None:
    keys = []

    def code(context: DurableContext) -> None:
        keys.append((context.key("charge"), context.key("refund")))
        context.sleep("a moment", tasks.HOUR * 0)

    run(code)
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2


def test_steps_of_a_loop_are_numbered() -> None:
    assert run(lambda c: [c.step(c.numbered("page"), tasks.note, str(n)) for n in range(2)]).return_value == ["0", "1"]
    assert set(Step.objects.values_list("name", flat=True)) == {"page-1", "page-2"}


def test_the_context_of_a_step_is_over_when_its_attempt_has_ended() -> None:
    kept: list[DurableContext] = []
    run(kept.append)
    with pytest.raises(InvalidStep, match="comes after the end of attempt 1"):
        kept[0].step("late", tasks.note, "late")


def in_a_transaction(context: DurableContext) -> None:
    with transaction.atomic():
        context.step("one", tasks.note, "one")


NEVER: Any = "never"
SEVEN: Any = "seven"
MISTAKES: dict[str, tuple[Callable[[DurableContext], Any], str]] = {
    "twice": (
        lambda c: [c.step("one", tasks.note, "one") for _ in range(2)],
        "The step 'one' is used twice in this run",
    ),
    "a step and an event of one name": (
        lambda c: [c.step("one", tasks.note, "one"), c.wait_for_event("one")],
        "The step 'one' is used twice in this run",
    ),
    "inside": (
        lambda c: c.step("outer", lambda: c.step("inner", tasks.note, "one")),
        "'inner' is inside of the step 'outer'",
    ),
    "a wait inside": (lambda c: c.step("outer", lambda: c.sleep("inner", tasks.HOUR)), "is inside of the step"),
    "a long name": (lambda c: c.step("n" * 10_000, tasks.note, "one"), "cannot be the name of a step"),
    "NUL": (lambda c: c.step("a\0b", tasks.note, "one"), "cannot be the name of a step"),
    "no JSON": (lambda c: c.step("one", object), "the result of the step 'one' is <object"),
    "NUL in a value": (lambda c: c.step("one", lambda: "a\0b"), "contains the character NUL"),
    "in a transaction": (in_a_transaction, "'one' is inside of transaction.atomic()"),
    "an async function": (lambda c: c.step("one", tasks.shout, "one"), "await context.astep('one', …)"),
    "a child inside of a step": (
        lambda c: c.step("one", lambda: tasks.double.enqueue_in(c, 1)),
        "could enqueue twice",
    ),
    "manual and atomic": (
        lambda c: c.step("one", tasks.note, "one", atomic=True, recovery="manual"),
        "leave recovery='manual' out",
    ),
    "recovery": (lambda c: c.step("one", tasks.note, "one", recovery=NEVER), "must be 'repeat' or 'manual'"),
    "no number": (lambda c: c.spend("tokens", float("nan"), of=3), "amount is nan: it must be a number"),
    "an amount that is too large": (
        lambda c: c.spend("tokens", Decimal("1e400000"), of=3),
        "amount is Decimal('1E+400000'): it must be a number of up to 30 digits",
    ),
    "a budget without a name": (lambda c: c.spend("a\0", 1, of=3), "cannot be the name of a budget"),
    "no id": (lambda c: c.gather([2**63]), "9223372036854775808 is no child: pass what task.enqueue_in"),
    "no child": (lambda c: c.gather([SEVEN]), "'seven' is no child"),
    "itself": (lambda c: c.gather([c.message.id]), "is no child of the message"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_an_error_with_the_next_step(mistake: str) -> None:
    code, expected = MISTAKES[mistake]
    assert expected in error_of(code)


def with_context(context: DurableContext) -> None:
    pass


def test_a_durable_task_is_not_atomic() -> None:
    with pytest.raises(InvalidTask, match="is durable and atomic"):
        task(durable=True, atomic=True)(with_context)


def test_a_changed_function_is_not_asked_again() -> None:
    answers = iter(["old", "new"])

    def code(context: DurableContext) -> Any:
        value = context.step("one", lambda: next(answers))
        context.sleep("a moment", tasks.HOUR * 0)
        return value

    assert run(code).return_value == "old"


def test_a_step_that_is_not_asked_for_any_more_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    def code(context: DurableContext) -> None:
        if context.attempt == 1:  # as before a deploy
            context.step("charge", tasks.note, "charge")
        context.sleep("a moment", tasks.HOUR * 0)
        context.step("pay", tasks.note, "pay")
        context.sleep("another", tasks.HOUR * 0)

    run(code)
    assert tasks.calls == ["charge", "pay"]
    assert list(Step.objects.filter(status="unasked").values_list("name", "attempt")) == [("charge", 2)]
    assert "the step 'charge' was done in attempt 1, and is not asked for any more." in caplog.text


def test_a_thousand_steps_are_read_at_once() -> None:
    def code(context: DurableContext) -> int:
        found = [context.step(f"page-{n}", lambda n=n: n) for n in range(1000)]
        context.sleep("a moment", tasks.HOUR * 0)
        return sum(found)

    assert run(code).return_value == 499_500


def test_a_suspended_attempt_is_not_counted() -> None:
    tasks.CODE["code"] = lambda context: [context.sleep(f"nap-{n}", tasks.HOUR * 0) for n in range(3)]
    tasks.run_code.using(max_attempts=1).enqueue("code")
    drain()
    assert list(Attempt.objects.order_by("id").values_list("status", flat=True)) == ["suspended"] * 3 + ["succeeded"]
    assert not Message.objects.exists()


def test_a_late_attempt_that_catches_its_loss_runs_no_further_step() -> None:
    def code(context: DurableContext) -> None:
        Message.objects.update(attempt=context.attempt + 1)  # as if another worker had taken it over
        for name in ("one", "two"):
            with contextlib.suppress(Exception):
                context.step(name, tasks.note, name)

    tasks.CODE["code"] = code
    tasks.run_code.enqueue("code")
    drain(limit=1)
    assert tasks.calls == ["one"]
    assert not Step.objects.exists()


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_a_job_that_has_done_steps_keeps_its_arguments_and_its_time(on_conflict: str) -> None:
    def code(context: DurableContext) -> None:
        context.step("one", tasks.note, "one")
        if context.attempt == 2:
            raise tasks.Trouble
        context.sleep("a while", tasks.HOUR * 0 if context.attempt == 1 else tasks.HOUR)

    tasks.CODE["code"] = code
    with clock() as now:
        for key, waits in (("suspended", 1), ("tried again", 2)):
            keyed = tasks.run_code.using(unique_key=key, on_conflict=on_conflict, max_attempts=5)
            result = keyed.enqueue("code")
            drain(limit=waits)
            before = Message.objects.values().get()
            assert before["attempt"] == waits
            assert keyed.using(run_after=tasks.HOUR * 9).enqueue("other").id == result.id
            assert Message.objects.values().get() == before
            Message.objects.all().delete()
            now.advance(tasks.HOUR)
