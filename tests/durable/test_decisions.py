"""Approvals and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.models import Approval, Message, Step
from django_pgqueue.testing import clock, drain
from tests.durable import tasks

if TYPE_CHECKING:
    from decimal import Decimal

    from django_pgqueue.durable import DurableContext

pytestmark = pytest.mark.django_db


def decide(message_id: Any, name: str = "ship-abroad", *, approved: bool = True, comment: str | None = None) -> str:
    return functions.approval_decide(connection, int(message_id), name, approved=approved, by="ada", comment=comment)


@pytest.mark.parametrize("approved", [True, False])
def test_a_task_goes_on_with_the_decision_of_a_person(approved: bool) -> None:
    result = tasks.asks.enqueue(to="shop.approve_export")
    drain()
    [asked] = Approval.objects.all()
    assert (asked.permission, asked.details, asked.decided_at) == ("shop.approve_export", {"order": 7}, None)
    assert decide(result.id, approved=approved, comment="fine") == "decided"
    drain()
    result.refresh()
    assert result.return_value == [approved, "ada", "fine"]
    recorded: Any = Step.objects.get(kind="approval", status="done").result
    assert recorded["by"] == "ada"


def test_there_is_one_decision() -> None:
    result = tasks.asks.enqueue()
    drain()
    assert decide(result.id) == "decided"
    assert decide(result.id, approved=False) == "already"
    assert Approval.objects.get().approved is True
    assert decide(result.id, "another") == "unknown"


def test_a_job_that_was_cancelled_needs_no_decision() -> None:
    result = tasks.asks.enqueue()
    drain()
    control.cancel(result)
    assert decide(result.id) == "ended"


def test_what_a_person_decides_cannot_be_emitted() -> None:
    result = tasks.asks.enqueue()
    drain()
    with pytest.raises(Exception, match="pgqueue:"), connection.cursor() as cursor:
        cursor.execute("select pgqueue_event_emit(%s, 'true')", [f"pgqueue:approval:{result.id}:ship-abroad"])


@pytest.mark.parametrize(("approved", "expected"), [(True, "CHARGE"), (False, "not repeated")])
def test_a_step_in_which_a_worker_died_waits_for_a_person(approved: bool, expected: str) -> None:
    def code(context: DurableContext) -> Any:
        if context.attempt == 1:  # as a worker leaves it that dies in the middle of the step
            context.steps.record("charge", None, kind="step", status="began")
            context.defer(0)
        try:
            return context.step("charge", tasks.note, "charge", recovery="manual")
        except Exception as error:  # noqa: BLE001
            return str(error)

    tasks.CODE["code"] = code
    result = tasks.run_code.enqueue("code")
    drain()
    assert tasks.calls == []
    [asked] = Approval.objects.all()
    assert asked.name == "repeat charge of attempt 1"
    decide(result.id, asked.name, approved=approved)
    drain()
    result.refresh()
    assert expected in result.return_value or "not to be repeated" in result.return_value
    assert len(tasks.calls) == approved


def test_a_manual_step_that_raised_is_tried_again() -> None:
    def code(context: DurableContext) -> Any:
        return context.step("charge", lambda: tasks.note("charge") if context.attempt > 1 else 1 / 0, recovery="manual")

    tasks.CODE["code"] = code
    result = tasks.run_code.using(max_attempts=2).enqueue("code")
    drain()
    Message.objects.update(dequeue_at=0, in_line=True)
    drain()
    result.refresh()
    assert result.return_value == "CHARGE"


def test_a_budget_counts_over_all_attempts() -> None:
    left: list[Decimal] = []

    def code(context: DurableContext) -> Any:
        left.append(context.spend("tokens", 40, of=100))
        context.sleep(f"nap {len(left)}", tasks.HOUR * 0)

    tasks.CODE["code"] = code
    result = tasks.run_code.enqueue("code")
    drain()
    result.refresh()
    assert left == [60, 20]
    assert "The budget 'tokens' has 20 left of 100: 40 is too much." in result.errors[-1].traceback
    assert Message.objects.count() == 0


def test_each_death_in_a_step_with_a_long_name_is_a_question_of_its_own() -> None:
    name = "é" * 127

    def code(context: DurableContext) -> Any:
        if context.attempt in (1, 3):  # as a worker leaves it that dies in the middle of the step
            context.steps.record(name, None, kind="step", status="began")
            context.defer(0)
        return context.step(name, tasks.note, "charge", recovery="manual")

    tasks.CODE["code"] = code
    result = tasks.run_code.enqueue("code")
    drain()
    assert decide(result.id, Approval.objects.get().name) == "decided"
    drain()
    assert tasks.calls == []
    assert sorted(approval.name[-9:] for approval in Approval.objects.all()) == ["attempt 1", "attempt 3"]


def test_a_permission_that_postgresql_cannot_store_is_refused_in_the_task() -> None:
    tasks.CODE["code"] = lambda context: context.approval("ship", to="shop.approve\0")
    result = tasks.run_code.enqueue("code")
    drain()
    result.refresh()
    assert "is not the name of a permission" in result.errors[0].traceback


def test_a_manual_step_whose_result_is_not_recorded_is_a_question() -> None:
    tasks.CODE["code"] = lambda context: context.step("charge", lambda: {tasks.note("charge")}, recovery="manual")
    with clock() as now:
        tasks.run_code.using(max_attempts=2).enqueue("code")
        drain()
        now.advance(tasks.HOUR)
        drain()
    assert tasks.calls == ["charge"]
    assert "how it ended is not recorded: it may have happened" in str(Approval.objects.get().details)
