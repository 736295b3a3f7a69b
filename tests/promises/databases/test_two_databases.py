"""``OPTIONS: {"DATABASE": "jobs"}`` from end to end: the job's own database may be another one."""

from __future__ import annotations

import datetime as dt
import io
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connections, transaction

from django_pgqueue import control
from django_pgqueue.backend import bulk
from django_pgqueue.compat import TaskResultDoesNotExist, TaskResultStatus
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models import Attempt, Event, Message, Worker
from django_pgqueue.testing import (
    acrash_at_every_statement,
    assert_enqueued,
    assert_not_enqueued,
    clock,
    crash_at_every_statement,
    drain,
    inline,
)
from tests.support.site import shelf, slow
from tests.support.site.shelf import note, post, steps_in_a_block_of_the_other
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.fixtures.workers import Start

pytestmark = pytest.mark.django_db(databases=["default", "jobs"], transaction=True)
HOUR = dt.timedelta(hours=1)


def ids(database: str) -> list[str]:
    return [str(pk) for pk in Message.objects.using(database).order_by("pk").values_list("pk", flat=True)]


def test_a_job_is_in_the_database_of_its_backend() -> None:
    there, here = note.enqueue("there"), note.using(backend="here").enqueue("here")
    assert (ids("jobs"), ids("default")) == ([there.id], [here.id])
    assert note.get_result(there.id).args == ["there"]
    assert note.using(backend="here").get_result(here.id).args == ["here"]
    with pytest.raises(TaskResultDoesNotExist):
        note.using(backend="here").get_result("123456789")


def test_an_enqueue_is_part_of_a_transaction_of_that_database() -> None:
    with transaction.atomic(using="jobs"):
        note.enqueue()
        transaction.set_rollback(True, using="jobs")
    assert ids("jobs") == []
    with transaction.atomic(using="default"):
        note.enqueue()
        transaction.set_rollback(True, using="default")
    assert len(ids("jobs")) == 1


@pytest.mark.parametrize("is_undone", [True, False])
def test_an_enqueue_may_wait_for_the_commit_of_the_other_database(*, is_undone: bool) -> None:
    with transaction.atomic(using="default"):
        transaction.on_commit(partial(note.enqueue, "there"), using="default")
        assert ids("jobs") == []
        transaction.set_rollback(is_undone, using="default")
    assert len(ids("jobs")) == (0 if is_undone else 1)


def test_the_test_helpers_use_the_database_of_the_backend() -> None:
    with clock() as now:
        post.using(run_after=HOUR).enqueue(7)
        assert_enqueued(post, args=[7], queue="mail", count=1)
        assert drain() == []
        now.advance(HOUR)
        assert [result.return_value for result in drain()] == ["7 to all"]
    assert_not_enqueued(post)
    with inline():
        assert note.enqueue().status is TaskResultStatus.SUCCESSFUL
    note.using(backend="here").enqueue()
    assert drain() == []
    assert len(drain(backend="here")) == 1
    assert (Attempt.objects.using("jobs").count(), Attempt.objects.using("default").count()) == (2, 1)


def test_bulk_uses_the_backend_database() -> None:
    bulk.enqueue_many(note, range(3))
    assert (len(ids("jobs")), len(ids("default"))) == (3, 0)


def test_control_uses_the_database_of_the_queue() -> None:
    there, here = note.enqueue(), note.using(backend="here").enqueue()
    assert control.cancel(here) == "cancelled"
    assert (ids("jobs"), ids("default")) == ([there.id], [])
    assert control.cancel(there.id) == "cancelled"
    assert ids("jobs") == []
    control.pause("default")
    note.enqueue()
    note.using(backend="here").enqueue()
    assert drain() == []
    assert len(drain(backend="here")) == 1
    assert not control.resume("default", database="default")
    assert control.resume("default")
    assert len(drain()) == 1


def test_an_event_of_a_task_is_emitted_in_the_default_database_unless_it_names_another() -> None:
    shelf.announce.using(backend="here").enqueue("paid:7")
    drain(backend="here")
    assert [list(Event.objects.using(one).values_list("name", flat=True)) for one in ("jobs", "default")] == [
        ["paid:7"], ["paid:7, here"],
    ]  # fmt: skip


def test_a_job_writes_in_the_project_s_database() -> None:
    shelf.add_group.enqueue("tea")
    drain()
    assert Group.objects.using("default").filter(name="tea").exists()


def test_the_router_sends_models_to_a_database() -> None:
    assert Message.objects.db == Attempt.objects.db == "jobs"
    assert Group.objects.db == "default"
    note.enqueue()
    assert Message.objects.get()._state.db == "jobs"


def test_dry_run_reads_the_backend_database() -> None:
    post.enqueue(7)
    out = io.StringIO()
    call_command("qworker", "--dry-run", stdout=out)
    assert "shelf.post" in out.getvalue()
    out = io.StringIO()
    call_command("qworker", "--dry-run", "--backend", "here", stdout=out)
    assert out.getvalue() == "Nothing is ready (all queues).\n"


def test_a_worker_serves_the_database_of_its_backend(start: Start) -> None:
    there, here = slow.whoami.enqueue(), slow.whoami.using(backend="here").enqueue()
    worker = start("-v", "1", DJANGO_SETTINGS_MODULE="tests.promises.databases.settings")
    wait_until(lambda: not ids("jobs"), "the job is done")
    assert ids("default") == [here.id]
    assert Worker.objects.using("jobs").count() == 1
    there.refresh()
    assert there.status is TaskResultStatus.SUCCESSFUL
    other = start("--backend", "here", DJANGO_SETTINGS_MODULE="tests.promises.databases.settings")
    wait_until(lambda: not ids("default"), "the other job is done")
    assert (worker.stop(), other.stop()) == (0, 0)
    wait_until(lambda: not connections_of_workers("jobs"), "the worker's sessions are closed")


def connections_of_workers(database: str) -> list[Any]:
    with connections[database].cursor() as cursor:
        cursor.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        return list(cursor.fetchall())


def test_a_step_in_a_transaction_of_the_other_database_is_refused() -> None:
    result = steps_in_a_block_of_the_other.enqueue()
    drain()
    result.refresh()
    assert "'add' is inside of transaction.atomic()" in result.errors[0].traceback
    assert not Group.objects.exists()


def test_a_crash_test_looks_at_the_models_of_another_database() -> None:
    Group.objects.create(name="coffee")
    report = crash_at_every_statement(shelf.add_another_group, "tea")
    assert report.first is not None, report
    assert report.first.sql.startswith("INSERT INTO")
    assert report.first.difference.startswith("run again: in 'default': auth_group has 3 rows instead of 2")
    assert list(Group.objects.values_list("name", flat=True)) == ["coffee"]


@pytest.mark.django_db(databases=["jobs"], transaction=True)
def test_a_crash_test_leaves_a_database_alone_that_the_test_may_not_use() -> None:
    assert crash_at_every_statement(note, "tea")
    assert async_to_sync(acrash_at_every_statement)(note, "tea")


def test_a_crash_test_needs_commits_in_all_its_databases() -> None:
    with transaction.atomic(), pytest.raises(PgQueueError, match="this test runs in a transaction"):
        crash_at_every_statement(note, "tea")


def test_a_crash_test_refuses_a_database_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    connections["default"].ensure_connection()
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", "orders")
    with pytest.raises(PgQueueError, match="The test may use the database 'default', whose name, 'orders', is not"):
        crash_at_every_statement(note, "tea")
