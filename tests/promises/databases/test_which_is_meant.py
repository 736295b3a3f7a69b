"""Calls that name no database go where it goes without saying, and say which there are where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from django_pgqueue import control
from django_pgqueue.compat import InvalidTask
from django_pgqueue.durable import decide
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models import Approval, Attempt, Message, QueueState
from django_pgqueue.queue import Queue
from django_pgqueue.routing import Exchange
from django_pgqueue.testing import clock
from tests.promises.databases.conftest import BACKEND
from tests.support.site.shelf import note

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db(databases=["default", "jobs"], transaction=True)

DUMMY = {"BACKEND": "django_pgqueue.stand_ins.DummyBackend"}
IN_JOBS: dict[str, Any] = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": "jobs"}}
IN_DEFAULT: dict[str, Any] = {"BACKEND": BACKEND, "QUEUES": []}


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        ({"default": IN_JOBS}, "jobs"),
        ({"default": DUMMY, "background": IN_JOBS}, "jobs"),
        ({"default": DUMMY, "background": IN_JOBS, "mail": IN_JOBS}, "jobs"),
        ({"default": IN_JOBS, "here": IN_DEFAULT}, "jobs"),
        ({"here": IN_JOBS, "default": IN_DEFAULT}, "default"),
        ({"default": DUMMY}, "default"),
    ],
)
def test_the_database_is_that_of_the_default_or_only_backend(
    settings: Settings, backends: dict[str, Any], expected: str
) -> None:
    settings.TASKS = backends
    assert Queue("mail").alias == expected
    message_id = Queue("mail").send("tea")
    control.pause("letters")
    assert QueueState.objects.using(expected).get().name == "letters"
    assert control.cancel(message_id) == "cancelled"
    Queue("mail").send_many(["more", "tea"])
    with clock():
        message = Queue("mail").receive()
        assert message is not None
        message.complete()
    assert [message.content for message in Message.objects.using(expected)] == ["tea"]
    assert Attempt.objects.using(expected).count() == 2


class ToJobs:
    """A project's own router."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "jobs" if model._meta.app_label == "django_pgqueue" else None


def test_without_our_backends_the_routers_choose_the_database(settings: Settings) -> None:
    settings.TASKS = {"default": DUMMY}
    settings.DATABASE_ROUTERS = ["tests.promises.databases.test_which_is_meant.ToJobs"]
    Queue("mail").send("tea")
    assert Message.objects.using("jobs").count() == 1


def test_an_ambiguous_database_is_an_error_with_the_choices(settings: Settings) -> None:
    settings.TASKS = {"default": DUMMY, "a": IN_JOBS, "b": IN_DEFAULT, "c": IN_JOBS}
    calls: list[Any] = [
        lambda: Queue("mail").send("tea"),
        lambda: Queue("mail").receive(),
        lambda: control.pause("mail"),
        lambda: control.cancel(7),
        lambda: Exchange("orders").publish("order", "tea"),
        clock,
    ]
    for call in calls:
        with pytest.raises(PgQueueError, match=r"name the database, as database=.*'default' \(b\), 'jobs' \(a, c\)"):
            call()
    assert Queue("mail", database="jobs").send("tea")
    assert control.cancel(Message.objects.using("jobs").get().pk, database="jobs") == "cancelled"


def test_an_explicit_database_is_used(settings: Settings) -> None:
    settings.TASKS = {"default": IN_JOBS}
    Queue("mail", "default").send("tea")
    assert Message.objects.using("default").count() == 1


class Ada:
    def has_perm(self, perm: str, obj: Any = None) -> bool:  # noqa: ARG002 -- as Django's users have it
        return True

    def get_username(self) -> str:
        return "ada"


def test_a_result_names_its_own_database(settings: Settings) -> None:
    settings.TASKS = {"default": IN_DEFAULT, "there": IN_JOBS}
    result = note.using(backend="there").enqueue("tea")
    for database in ("default", "jobs"):
        Approval.objects.using(database).create(message_id=result.id, name="ship-abroad", asked_at=timezone.now())
    assert decide(result, "ship-abroad", approved=True, user=Ada()) == "decided"
    assert [Approval.objects.using(one).get().decided_by for one in ("default", "jobs")] == [None, "ada"]
    assert control.cancel(result) == "cancelled"


def test_a_job_waits_for_jobs_of_its_own_database(settings: Settings) -> None:
    settings.TASKS = {"default": IN_DEFAULT, "there": IN_JOBS, "there_too": IN_JOBS}
    here, there = note.enqueue("tea"), note.using(backend="there").enqueue("tea")
    with pytest.raises(InvalidTask, match=r"a job of the backend 'there', and .* a job of 'default': .* two databases"):
        note.using(after=[here, there])
    with pytest.raises(InvalidTask, match="a job of the backend 'default'"):
        note.using(after=[here], backend="there")
    after = note.using(after=[there], backend="there_too").enqueue("sugar")
    assert Message.objects.using("jobs").get(pk=after.id).after_ids == [int(there.id)]
