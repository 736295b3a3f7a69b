"""All that a list of the history finds is enqueued again, by a job."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_pgqueue.admin import again, again_page
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import drain
from tests.admin.conftest import ATTEMPTS, MESSAGES, claim, complete, fail, retry, send, visitor_of
from tests.admin.page import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.page import Visitor

AGAIN = f"{ATTEMPTS}again/"
JOB = "django_pgqueue.admin.again.enqueue_again"

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


def test_it_says_how_many_before(root: Visitor, history: list[int]) -> None:
    page = ask(root, FAILED_MAILS)
    text = page.root.one(id="content-main").text
    assert text.startswith("7 ended messages of this list can be enqueued again, by status failed, queue mail. ")
    assert not Message.objects.exists(), "nothing is done by asking"
    assert page.root.one("a", class_="closelink").attributes["href"] == f"{ATTEMPTS}?{FAILED_MAILS}"


def test_a_job_enqueues_them_and_no_others(root: Visitor, history: list[int]) -> None:
    page = confirmed(root, FAILED_MAILS)
    [job] = Message.objects.all()
    assert job.task == JOB
    assert page.response.request["PATH_INFO"] == f"{MESSAGES}{job.pk}/change/"
    assert page.said == [f"Job {job.pk} enqueues them again, as soon as a worker takes it."]
    assert run() == [{"enqueued_again": 7}]
    assert made() == history
    assert LogEntry.objects.get().change_message == f"Enqueue again: all of ?{FAILED_MAILS}"


def test_in_batches_and_in_several_jobs_nothing_is_enqueued_twice(
    root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "BATCH", 2)
    monkeypatch.setattr(again, "BATCHES", 1)
    confirmed(root, FAILED_MAILS)
    results = run()
    assert [result["enqueued_again"] for result in results] == [2, 4, 6, 7]
    assert ["goes_on_in" in result for result in results] == [True, True, True, False]
    assert made() == history


def test_a_job_that_fails_on_its_way_has_done_whole_batches(
    root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had enqueued goes with it, and the job can be enqueued again itself."""
    monkeypatch.setattr(again, "BATCH", 2)
    Attempt.objects.filter(message_id=history[4]).update(priority=9999)
    confirmed(root, FAILED_MAILS)
    drain(["default"])
    assert Attempt.objects.get(task=JOB).status == "failed"
    assert made() == []


def test_what_ended_after_the_question_is_not_meant(root: Visitor, history: list[int]) -> None:
    page = ask(root, FAILED_MAILS)
    data = sent_with(page)
    send(queue="mail")
    fail(claim("mail")[0])
    root.client.post(f"{AGAIN}?{FAILED_MAILS}", data)
    send(queue="mail")
    fail(claim("mail")[0])
    run()
    assert made() == history


def test_many_are_counted_up_to_a_limit(root: Visitor, history: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again_page, "MOST", 5)
    assert ask(root, FAILED_MAILS).root.one(id="content-main").text.startswith("5+ ended messages ")


def test_where_nothing_matches_there_is_no_button(root: Visitor, history: list[int]) -> None:
    page = ask(root, "queue=nobody")
    assert page.root.one(id="content-main").text.startswith("0 ended messages ")
    assert page.root.all("input", name="confirmed") == []


def test_a_filter_that_is_none_finds_nothing(root: Visitor, history: list[int]) -> None:
    assert ask(root, "nonsense=1").response.request["PATH_INFO"] == ATTEMPTS
    assert ask(root, "duration__range__gte=soon").root.all("input", name="confirmed") == []


def test_the_list_offers_it_with_its_filters_to_those_who_may(
    visitor: Callable[..., Visitor], history: list[int]
) -> None:
    def links(visitor: Visitor) -> list[str]:
        return [link.attributes.get("href", "") for link in visitor.open(f"{ATTEMPTS}?{FAILED_MAILS}").root.all("a")]

    assert f"{AGAIN}?{FAILED_MAILS}" in links(visitor("view_attempt", "run_message"))
    assert not any(link.startswith(AGAIN) for link in links(visitor("view_attempt", "change_attempt")))


def test_it_needs_both_permissions_a_post_and_a_token(
    root: Visitor, visitor: Callable[..., Visitor], history: list[int]
) -> None:
    data = {"confirmed": "yes", "newest": str(10**9)}
    for permissions in (("view_attempt", "change_attempt", "see_content"), ("run_message", "view_message")):
        clerk = visitor(*permissions)
        assert clerk.client.get(AGAIN).status_code == 403
        assert clerk.client.post(AGAIN, data).status_code == 403
    client = Client(enforce_csrf_checks=True)
    client.cookies = root.client.cookies
    assert client.post(AGAIN, data).status_code == 403
    assert root.client.put(AGAIN).status_code == 405
    assert root.client.get(AGAIN, data).status_code in {200, 302}
    assert not Message.objects.exists()


def test_what_the_docstrings_show_is_so() -> None:
    assert doctest.testmod(again_page).failed == 0


def test_a_permission_that_was_taken_away_stops_the_job(history: list[int]) -> None:
    user = User.objects.create_user("clerk", is_staff=True)
    for name in ("view_attempt", "run_message"):
        user.user_permissions.add(Permission.objects.get(content_type__app_label="pgqueue", codename=name))
    confirmed(visitor_of(user), FAILED_MAILS)
    user.user_permissions.clear()
    drain(["default"])
    ended = Attempt.objects.get(task=JOB)
    assert (ended.status, ended.error_class) == ("failed", "django.core.exceptions.PermissionDenied")
    assert made() == []
