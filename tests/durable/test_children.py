"""Children: enqueued once, waited for, cancelled with their parent."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import control
from django_pgqueue.exceptions import InvalidStep
from django_pgqueue.models import Attempt, Child, Message
from django_pgqueue.testing import drain
from tests.durable import tasks

pytestmark = pytest.mark.django_db


def test_a_parent_gets_the_values_of_its_children_in_order() -> None:
    result = tasks.parent.enqueue([3, 1, 2])
    drain()
    result.refresh()
    assert result.return_value == [6, 2, 4, 200]
    assert sorted(tasks.calls) == ["double 1", "double 100", "double 2", "double 3"]
    assert list(Attempt.objects.filter(message_id=result.id).order_by("id").values_list("status", flat=True)) == [
        "suspended",
        "suspended",
        "succeeded",
    ]


def test_a_parent_waits_until_the_last_child_has_ended() -> None:
    result = tasks.parent.enqueue([1, 2])
    drain(limit=2)
    result.refresh()
    assert not result.is_finished
    assert Message.objects.get(pk=result.id).suspended_attempt == 1
    drain()
    result.refresh()
    assert result.is_finished


@pytest.mark.parametrize("keep", [False, True])
def test_a_parent_gets_the_errors_of_its_children(keep: bool) -> None:
    result = tasks.parent_of_failure.enqueue(keep=keep)
    drain()
    result.refresh()
    value = result.return_value
    if keep:
        assert value[0] == "2"
        assert value[1].endswith("ended as failed: tests.durable.tasks.Trouble")
    else:
        assert value == ["failed", "no"]


def test_the_error_of_a_parent_does_not_quote_that_of_a_child() -> None:
    """Who may read errors of the parent may not read those of a task with sensitive arguments."""
    result = tasks.parent_of_payment.enqueue()
    drain()
    failed = Attempt.objects.get(message_id=result.id, status="failed")
    assert (failed.error_message or "").endswith("ended as failed: tests.durable.tasks.Trouble")
    assert tasks.CARD not in f"{failed.error_message} {failed.traceback}"


def test_many_children_are_enqueued_by_one_atomic_step() -> None:
    result = tasks.many_children.enqueue(300)
    drain()
    result.refresh()
    assert result.return_value == sum(2 * n for n in range(300))
    assert Child.objects.count() == 300


def test_children_that_have_not_begun_are_cancelled_with_their_parent() -> None:
    result = tasks.parent.enqueue([1, 2, 3])
    drain(limit=2)  # the parent, and one child
    control.cancel(result)
    assert not Message.objects.exists()
    assert list(Attempt.objects.filter(final=True).order_by("message_id").values_list("status", flat=True)) == [
        "cancelled",
        "succeeded",
        "cancelled",
        "cancelled",
    ]


def test_a_run_from_a_later_step_has_the_children_of_the_first_one() -> None:
    def code(context: Any) -> Any:
        ids = context.step("fan out", lambda: [tasks.double.enqueue_in(context, n).id for n in (1, 2)], atomic=True)
        one = tasks.double.enqueue_in(context, 3)
        context.sleep("a moment", tasks.HOUR * 0)
        return [*context.gather([*ids, one]), context.step("last", tasks.note, "last")]

    tasks.CODE["code"] = code
    first = tasks.run_code.using(max_attempts=3).enqueue("code")
    drain()
    assert tasks.calls == ["double 1", "double 2", "double 3", "last"]
    for _ in range(2):  # each of them has the children
        new = control.run_from_step(first, "last")
        assert Message.objects.get(pk=new).max_attempts == 4  # three of its own, beside the one of the records
        drain()
        [end] = Attempt.objects.filter(message_id=new, final=True)
        assert end.result == [2, 4, 6, "LAST"]
        assert end.headers == {"enqueued_again_from": int(first.id), "enqueued_from_step": "last"}
    assert tasks.calls[4:] == ["last", "last"]
    new = control.run_from_step(str(new), "fan out")
    drain()
    assert Attempt.objects.get(message_id=new, final=True).result == [2, 4, 6, "LAST"]
    assert tasks.calls[6:] == ["double 1", "double 2", "double 3", "last"]


def test_what_cannot_run_from_a_step_is_told() -> None:
    result = tasks.sleepy.enqueue()
    drain()
    for message, step, expected in (
        (result, "before", f"message {result.id} has not ended, or the history does not have it any more"),
        (result, "a\0b", "cannot be the name of a step"),
        ("seven", "before", "'seven' is not the id of a message"),
    ):
        with pytest.raises(InvalidStep, match=re.escape(expected)):
            control.run_from_step(message, step)
    control.cancel(result)
    with pytest.raises(InvalidStep, match=f"message {result.id} has no step beforehand. Choose one"):
        control.run_from_step(result, "beforehand")


def test_results_of_children_outlive_the_history_until_their_parent_has_read_them() -> None:
    result = tasks.parent.enqueue([1, 2])
    drain(limit=2)
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_child_keep(%s)", [dt.datetime.now(dt.UTC).date()])
        assert cursor.fetchone() == (1,)
    Attempt.objects.filter(status="succeeded").delete()
    drain()
    result.refresh()
    assert result.return_value == [2, 4, 200]


def test_a_child_with_a_unique_key_is_not_cancelled_with_one_of_those_who_asked_for_it() -> None:
    child = tasks.double.using(unique_key="one", run_after=tasks.HOUR)
    asked_before = child.enqueue(1)
    tasks.CODE["code"] = lambda context: context.gather([child.enqueue_in(context, 2)])
    result = tasks.run_code.enqueue("code")
    drain()
    assert control.cancel(result) == "cancelled"
    asked_before.refresh()
    assert asked_before.status == "READY"
