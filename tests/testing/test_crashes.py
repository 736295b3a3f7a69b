"""``testing.crash_at_every_statement``: what it finds, and what it leaves behind."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import TransactionTestCase

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import acrash_at_every_statement, crash_at_every_statement
from tests.testing import crash_tasks

FILE = "tests/testing/crash_tasks.py"
transactional = pytest.mark.django_db(transaction=True)


def line_of(code: str, *, after: int = 0) -> str:
    """Place of a line of the handlers, as reports name it."""
    lines = Path(crash_tasks.__file__).read_text(encoding="utf-8").splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if code in line]
    return f"{FILE}:{number + after}"


@transactional
@pytest.mark.parametrize(
    "task",
    [
        crash_tasks.idempotent,
        crash_tasks.once_and_again,
        crash_tasks.atomically,
        crash_tasks.in_one_transaction,
        crash_tasks.rolls_a_savepoint_back,
        crash_tasks.tidies_up,
        crash_tasks.leaves_nothing,
        crash_tasks.at_some_time,
        crash_tasks.in_steps,
        crash_tasks.only_once,  # a crash is no error of the task's, and uses no attempt up
    ],
    ids=lambda task: task.name,
)
def test_effects_that_happen_exactly_once_pass(task: Any) -> None:
    report = crash_at_every_statement(task, "tea")
    assert report.exactly_once, report
    assert report
    assert report.first is None
    assert "exactly once each time" in str(report)


@transactional
def test_a_plain_step_is_found_whose_effect_is_repeated() -> None:
    report = crash_at_every_statement(crash_tasks.in_plain_steps, "tea")
    assert not report
    assert report.first is not None
    assert report.first.sql.startswith("INSERT INTO")  # before the record


@transactional
def test_a_repeated_effect_is_found_with_its_statement_and_line() -> None:
    report = crash_at_every_statement(crash_tasks.twice, "tea")
    assert not report
    assert report.first is not None
    assert report.first.sql.startswith("INSERT INTO")
    assert "auth_group" in report.first.sql
    assert report.first.place == line_of("def twice", after=1)
    assert "auth_group has 2 rows instead of 1" in report.first.difference
    assert "{name: 'tea 1'}" in report.first.difference
    assert str(report.first) in str(report)


@transactional
def test_the_moment_between_two_transactions_counts() -> None:
    report = crash_at_every_statement(crash_tasks.between_two_transactions, "tea")
    assert report.first is not None
    assert report.first.sql == "COMMIT"


@transactional
def test_a_job_that_is_enqueued_twice_is_found() -> None:
    report = crash_at_every_statement(crash_tasks.enqueues, "tea")
    assert report.first is not None
    assert report.first.place == line_of("def enqueues", after=2)
    assert "enqueued jobs has 2 rows instead of 1" in report.first.difference


@transactional
def test_an_async_task_is_killed_at_its_own_lines() -> None:
    report = crash_at_every_statement(crash_tasks.on_its_way, "tea")
    assert report.first is not None
    assert report.first.place == line_of("await Group.objects.acreate")
    assert "INSERT INTO" in report.first.sql


@transactional
def test_a_task_that_fails_the_second_time_is_found() -> None:
    second = crash_at_every_statement(crash_tasks.breaks, "tea").first
    assert second is not None
    assert second.status == "failed"
    assert "run again, it ended as failed" in str(second)


@transactional
def test_everything_is_as_it_was_afterwards() -> None:
    Group.objects.create(name="before")
    waiting = crash_tasks.idempotent.enqueue("milk")
    crash_at_every_statement(crash_tasks.in_one_transaction, "tea")
    assert list(Group.objects.values_list("name", flat=True)) == ["before"]
    assert list(Message.objects.values_list("pk", flat=True)) == [int(waiting.id)]
    assert not Attempt.objects.exists()
    assert not connection.in_atomic_block


@transactional
def test_a_test_may_define_the_effects() -> None:
    answers = count()

    def names() -> list[str]:
        return sorted(Group.objects.values_list("name", flat=True))

    report = crash_at_every_statement(crash_tasks.twice, "tea", effects=names)
    assert report.first is not None
    assert report.first.difference == "run again: effects() is ['tea 0', 'tea 1'] instead of ['tea 0']"
    assert crash_at_every_statement(crash_tasks.twice, "tea", effects=lambda: None)
    with pytest.raises(PgQueueError, match="another value after each run"):
        crash_at_every_statement(crash_tasks.twice, "tea", effects=lambda: next(answers))


@transactional
def test_a_task_that_fails_without_a_crash_is_an_error() -> None:
    with pytest.raises(PgQueueError, match="ends as failed without any crash"):
        crash_at_every_statement(crash_tasks.fails, "tea")


@pytest.mark.django_db
def test_it_needs_its_own_transactions() -> None:
    with pytest.raises(PgQueueError, match="TransactionTestCase"):
        crash_at_every_statement(crash_tasks.idempotent, "tea")


class TestInAnAsyncTestCase(TransactionTestCase):
    async def test_async(self) -> None:
        report = await acrash_at_every_statement(crash_tasks.leaves_nothing, "tea")
        assert report.exactly_once
