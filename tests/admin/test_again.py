"""All that a list of the history finds is enqueued again, by a job."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.admin.attempt import reenqueue_page, reenqueue_task
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.models import Attempt, Binding, Message, Schedule
from django_pgqueue.tasks import every, registry
from django_pgqueue.testing import drain
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, fail, retry, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet
    from pytest_django.fixtures import Settings

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

AGAIN = f"{ATTEMPTS}again/"
JOB = "django_pgqueue.admin.attempt.reenqueue_task.enqueue_again"

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def history(db: None) -> list[int]:
    """Failed ones of a queue, and others."""
    mails = []
    for _ in range(7):
        mails.append(send(queue="mail"))
        fail(claim("mail")[0], ValueError("no"))
    send(queue="mail")
    complete(claim("mail")[0])
    send(queue="other")
    fail(claim("other")[0])
    pk = send(queue="mail")
    retry(claim("mail")[0], delay_ms=10**9)
    Message.objects.filter(pk=pk).delete()
    return mails


def ask(root: Visitor, query: str) -> Page:
    return root.open(f"{AGAIN}?{query}")


def confirmed(root: Visitor, query: str) -> Page:
    data = sent_with(ask(root, query))
    return Page(root.client.post(f"{AGAIN}?{query}", data, follow=True))


def sent_with(page: Page) -> dict[str, str]:
    fields = [field.attributes for field in page.root.one(id="content-main").all("input")]
    return {field["name"]: field["value"] for field in fields}


def made() -> list[int]:
    return sorted(
        message.headers["enqueued_again_from"] for message in Message.objects.exclude(task=JOB) if message.headers
    )


def run() -> list[Any]:
    """The job, and not what it has enqueued."""
    return [result.return_value for result in drain(["default"])]


FAILED_MAILS = "status__exact=failed&queue=mail"


def test_the_question_shows_the_number_of_messages(root: Visitor, history: list[int]) -> None:
    page = ask(root, FAILED_MAILS)
    text = page.root.one(id="content-main").text
    assert text.startswith("7 ended messages of this list can be enqueued again, by status failed, queue mail. ")
    assert not Message.objects.exists(), "nothing is done by asking"
    assert page.root.one("a", class_="closelink").attributes["href"] == f"{ATTEMPTS}?{FAILED_MAILS}"


def test_the_job_enqueues_the_listed_messages_and_no_others(root: Visitor, history: list[int]) -> None:
    page = confirmed(root, FAILED_MAILS)
    [job] = Message.objects.all()
    assert job.task == JOB
    assert page.response.request["PATH_INFO"] == f"{MESSAGES}{job.pk}/change/"
    assert page.said == [f"Job {job.pk} enqueues them again as soon as a worker runs it."]
    assert run() == [{"enqueued_again": 7}]
    assert made() == history
    assert LogEntry.objects.get().change_message == f"Enqueue again: ?{FAILED_MAILS}"


def test_in_batches_and_in_several_jobs_nothing_is_enqueued_twice(
    root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reenqueue_task, "BATCH", 2)
    monkeypatch.setattr(reenqueue_task, "BATCHES", 1)
    confirmed(root, FAILED_MAILS)
    results = run()
    assert [result["enqueued_again"] for result in results] == [2, 4, 6, 7]
    assert ["goes_on_in" in result for result in results] == [True, True, True, False]
    assert made() == history


def test_a_job_that_fails_on_its_way_has_done_whole_batches(
    root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages that it had enqueued go with it, and the job can be enqueued again itself."""
    monkeypatch.setattr(reenqueue_task, "BATCH", 2)
    Attempt.objects.filter(message_id=history[4]).update(priority=9999)
    confirmed(root, FAILED_MAILS)
    drain(["default"])
    assert Attempt.objects.get(task=JOB).status == "failed"
    assert made() == []


def test_messages_that_ended_after_the_question_are_left_out(root: Visitor, history: list[int]) -> None:
    page = ask(root, FAILED_MAILS)
    data = sent_with(page)
    send(queue="mail")
    fail(claim("mail")[0])
    root.client.post(f"{AGAIN}?{FAILED_MAILS}", data)
    send(queue="mail")
    fail(claim("mail")[0])
    run()
    assert made() == history


def test_many_messages_are_counted_up_to_a_limit(
    root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reenqueue_page, "MOST", 5)
    assert ask(root, FAILED_MAILS).root.one(id="content-main").text.startswith("5+ ended messages ")


def test_the_button_is_hidden_if_no_message_matches(root: Visitor, history: list[int]) -> None:
    assert ask(root, "queue=nobody").root.one(id="content-main").text.startswith("0 ended messages ")
    for query in ("queue=nobody", "duration__range__gte=soon"):
        assert ask(root, query).root.all("input", name="confirmed") == []
    assert ask(root, "nonsense=1").response.request["PATH_INFO"] == ATTEMPTS, "such a filter is none"


def test_the_list_offers_the_action_with_its_filters_to_permitted_users(
    visitor: Callable[..., Visitor], history: list[int]
) -> None:
    def links(visitor: Visitor) -> list[str]:
        return [link.attributes.get("href", "") for link in visitor.open(f"{ATTEMPTS}?{FAILED_MAILS}").root.all("a")]

    assert f"{AGAIN}?{FAILED_MAILS}" in links(visitor("view_attempt", "run_message"))
    assert not any(link.startswith(AGAIN) for link in links(visitor("view_attempt", "change_attempt")))


def test_the_page_accepts_only_get_and_post(root: Visitor) -> None:
    assert root.client.put(AGAIN).status_code == 405


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.get().user_permissions.clear(),
        lambda users: users.update(is_active=False),
        lambda users: users.update(is_staff=False),
        lambda users: users.delete(),
    ],
    ids=["without its permissions", "inactive", "not of the staff", "deleted"],
)
def test_a_job_of_a_user_who_may_not_do_it_any_more_does_nothing(
    visitor: Callable[..., Visitor], history: list[int], change: Callable[[QuerySet[User]], object]
) -> None:
    confirmed(visitor("view_attempt", "run_message"), FAILED_MAILS)
    change(User.objects.all())
    drain(["default"])
    ended = Attempt.objects.get(task=JOB)
    assert (ended.status, ended.error_class) == ("failed", "django.core.exceptions.PermissionDenied")
    assert made() == []


@pytest.mark.usefixtures("history")
class TestFromOutside:
    """A job that no page has signed for its own message does nothing, however somebody enqueues it."""

    def refused(self, reason: str) -> None:
        drain(["default"])
        ended = Attempt.objects.filter(task=JOB).latest("id")
        assert (ended.status, ended.error_class) == ("failed", "django.core.exceptions.PermissionDenied")
        assert reason in str(ended.error_message)
        assert "Use the page" in str(ended.error_message)
        assert made() == []

    @pytest.mark.parametrize("token", ['""', '"e30:1vN:x"', "7", "null", '{"query": ""}'])
    def test_sql_without_a_signature(self, token: str) -> None:
        send(f'{{"args": [], "kwargs": {{"token": {token}}}}}', task=JOB)
        self.refused("no token that this site has signed")

    def test_arguments_instead_of_a_token(self) -> None:
        user = User.objects.create_superuser("root")
        said = {"query": "", "newest": 10**9, "user_id": user.pk}
        send(json.dumps({"args": [], "kwargs": said}), task=JOB)
        drain(["default"])
        ended = Attempt.objects.get(task=JOB)
        assert "unexpected keyword argument 'query'" in str(ended.error_message)
        assert made() == []

    def test_a_token_of_another_secret(self, root: Visitor, settings: Settings) -> None:
        confirmed(root, FAILED_MAILS)
        settings.SECRET_KEY = "another one"
        self.refused("no token that this site has signed")

    def test_a_signature_of_something_else(self) -> None:
        token = signing.dumps({"query": "", "newest": 10**9, "user": "1"}, salt="a form of the project")
        send(json.dumps({"args": [], "kwargs": {"token": token}}), task=JOB)
        self.refused("no token that this site has signed")

    def test_a_copy_before_and_after_the_job_has_run(self, root: Visitor) -> None:
        """A token that was read from the content of a message, or in the table, is good for nothing."""
        confirmed(root, FAILED_MAILS)
        [job] = Message.objects.all()
        copy = json.dumps(job.content)
        Message.objects.all().delete()
        send(copy, task=JOB)
        self.refused("This job is a copy")

    def test_the_job_enqueued_again(self, root: Visitor, history: list[int]) -> None:
        confirmed(root, FAILED_MAILS)
        run()
        assert made() == history
        [ended] = Attempt.objects.filter(task=JOB)
        page = root.act(ATTEMPTS, "enqueue_again", [ended.pk])
        assert page.said[0].startswith("1 not enqueued again, because they are jobs of the page")
        functions.attempt_enqueue(connection, [ended.pk])
        drain(["default"])
        assert Attempt.objects.filter(task=JOB).latest("id").status == "failed"
        assert made() == history

    def test_a_job_that_waited_for_a_week(self, root: Visitor, clock: Clock) -> None:
        confirmed(root, FAILED_MAILS)
        clock.advance(reenqueue_task.MAX_AGE + dt.timedelta(seconds=1))
        self.refused("older than 7 days")


@pytest.mark.usefixtures("history")
class TestSchedules:
    CONTENT: ClassVar[dict[str, Any]] = {"args": [], "kwargs": {"token": ""}}

    def schedule(self) -> None:
        Schedule.objects.create(name="mine", task=JOB, content=self.CONTENT, cron="* * * * *", next_at=0)

    def test_the_schedule_form_refuses_the_task(self, root: Visitor) -> None:
        given = {"name": "mine", "task": JOB, "args": "[]", "kwargs": '{"token": ""}', "cron": "* * * * *"}
        more = {"timezone": "UTC", "catch_up": "one", "queue": "default", "priority": "0", "max_attempts": "1"}
        answer = root.client.post("/admin/django_pgqueue/schedule/add/", {**given, **more})
        assert b"is an internal task of django_pgqueue, which no schedule can enqueue" in answer.content
        assert not Schedule.objects.exists()

    def test_a_binding_refuses_the_task(self, root: Visitor) -> None:
        functions.exchange_declare(connection, "orders")
        given = {"exchange": "orders", "kind": "topic", "pattern": "#", "queue": "", "task": JOB, "priority": "0"}
        answer = root.client.post("/admin/django_pgqueue/binding/add/", given)
        assert answer.status_code == 200
        assert not Binding.objects.exists()

    def test_a_schedule_of_the_task_is_not_fired(self, caplog: pytest.LogCaptureFixture) -> None:
        self.schedule()
        Scheduler("default").look_if_due(connection)
        assert "schedule name=mine cannot be used and is paused" in caplog.text
        assert not Message.objects.exists()
        assert Schedule.objects.get().paused_at is not None

    def test_a_schedule_of_the_task_cannot_run_now(self) -> None:
        self.schedule()
        with pytest.raises(InvalidSchedule, match="internal task"):
            control.run_schedule("mine")
        message = functions.schedule_message(connection, "mine")
        assert message is not None
        functions.enqueue(connection, message)
        drain(["default"])
        assert Attempt.objects.get(task=JOB).status == "failed", "SQL may enqueue it, and it does nothing"
        assert made() == []

    def test_code_cannot_declare_the_schedule(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        rule = every(dt.timedelta(minutes=1), kwargs={"token": ""})
        monkeypatch.setattr(registry, "scheduled", lambda: [replace(reenqueue_task.enqueue_again, schedule=rule)])
        Scheduler("default").look_if_due(connection)
        assert "cannot be declared" in caplog.text
        assert not Schedule.objects.exists()


def test_repeated_requests_do_not_multiply_messages(root: Visitor, history: list[int]) -> None:
    """Messages that were enqueued again are left out, and so are the jobs that did it: one stands for each message."""
    for _ in range(3):
        confirmed(root, "")
        run()
        assert Message.objects.count() == 9, "of seven mails that failed, one that succeeded, and one of another queue"
        for queue in ("mail", "other"):
            for held in claim(queue, limit=100):
                fail(held, ValueError("no"))
    confirmed(root, "status__exact=failed")
    run()
    assert Message.objects.count() == 9


def test_a_message_that_was_enqueued_again_before_is_skipped(root: Visitor, history: list[int]) -> None:
    confirmed(root, FAILED_MAILS)
    run()
    complete(claim("mail")[0])
    confirmed(root, FAILED_MAILS)
    assert run() == [{"enqueued_again": 0}], "six wait, and one has succeeded"
    fail(claim("mail")[0], ValueError("no"))
    confirmed(root, FAILED_MAILS)
    assert run() == [{"enqueued_again": 1}]


def test_the_path_of_the_task_is_the_one_that_waiting_jobs_name() -> None:
    assert reenqueue_page.JOB == JOB == reenqueue_task.enqueue_again.module_path
