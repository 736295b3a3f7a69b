"""``inline``: jobs run where they are enqueued, and otherwise as they would anywhere."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from django_pgqueue.backend import bulk
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, drain, inline
from tests.support.site import shelf, slow

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

HOUR = dt.timedelta(hours=1)
DONE, FAILED, READY = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED, TaskResultStatus.READY


@pytest.mark.django_db
class TestInline:
    def test_the_result_has_the_outcome(self) -> None:
        with inline():
            result = shelf.note.enqueue(1, two=2)
        assert (result.status, result.return_value) == (DONE, [[1], {"two": 2}])
        assert not Message.objects.exists()

    def test_an_exception_is_in_the_result_and_not_in_the_caller(self) -> None:
        with inline():
            result = shelf.fail.enqueue("no network")
            assert shelf.note.enqueue().status is DONE
        assert result.status is FAILED
        assert result.errors[0].exception_class is OSError

    def test_an_async_task_ends_on_time(self) -> None:
        with inline():
            result = slow.nap.enqueue()
        assert result.errors[0].exception_class is TaskTimeout

    def test_a_scheduled_message_stays_in_the_queue(self) -> None:
        with inline():
            result = shelf.note.using(run_after=HOUR).enqueue()
        assert result.status is READY
        assert_enqueued(shelf.note, run_after=HOUR)

    def test_the_job_runs_in_the_transaction_of_the_caller(self) -> None:
        with inline(), transaction.atomic():
            Group.objects.create(name="the caller's")
            shelf.add_group.enqueue("the job's")
            assert Group.objects.count() == 2
            transaction.set_rollback(True)
        assert not Group.objects.exists()
        assert not Attempt.objects.exists()
        assert_not_enqueued()

    def test_jobs_that_a_job_enqueues_run_after_it(self) -> None:
        with inline():
            result = shelf.pass_on.enqueue(3)
        assert result.return_value == "READY"
        ended = list(Attempt.objects.order_by("id").values_list("content__args", flat=True))
        assert ended == [[3], [2], [1], [0]]

    def test_jobs_enqueued_in_bulk_run_at_the_end(self) -> None:
        with inline():
            bulk.enqueue_many(shelf.note, range(3))
            assert_enqueued(shelf.note, count=3)
        assert_not_enqueued()
        assert Attempt.objects.count() == 3

    def test_afterwards_jobs_wait_again(self) -> None:
        with inline(), inline():
            assert shelf.note.enqueue().status is DONE
        assert shelf.note.enqueue().status is READY
        assert len(drain()) == 1

    def test_also_after_a_test_that_fails(self) -> None:
        def fail() -> None:
            with inline():
                bulk.enqueue_many(shelf.note, [1])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert shelf.note.enqueue().status is READY
        assert_enqueued(shelf.note, count=2)

    def test_a_job_that_cannot_run_raises_at_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def break_down(**_: Any) -> None:
            raise ZeroDivisionError

        def enqueue() -> None:
            with inline():
                monkeypatch.setattr(sys.modules["django_pgqueue.testing.inline"], "drain", break_down)
                shelf.note.enqueue()

        with pytest.raises(ZeroDivisionError):
            enqueue()

    def test_inline_can_be_a_setting(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.InlineBackend", "QUEUES": []}}
        assert shelf.note.enqueue(1).return_value == [[1], {}]
        assert shelf.pass_on.enqueue(2).status is DONE
        assert_not_enqueued()
        assert shelf.note.using(run_after=HOUR).enqueue().status is READY


class InTestCase(TestCase):
    async def test_async(self) -> None:
        async with inline():
            result = await shelf.add_group_async.aenqueue("tea")
        assert result.status is DONE
        assert await Group.objects.filter(name="tea").aexists()


class InTransactionTestCase(TransactionTestCase):
    def test_inline(self) -> None:
        with inline():
            shelf.add_group.enqueue("tea")
        assert Group.objects.filter(name="tea").exists()
