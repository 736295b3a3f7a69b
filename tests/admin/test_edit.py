"""Changes of a message on its page, by its form and its buttons."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.models import Attempt, Message
from django_pgqueue.values.times import to_epoch_ms
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, send

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Page, Visitor

pytestmark = pytest.mark.usefixtures("clock")

HOUR_MS = 3_600_000
TAKEN = "The message was not changed: a worker has taken it meanwhile, or it has ended."


def url(pk: int) -> str:
    return f"{MESSAGES}{pk}/change/"


def save(root: Visitor, pk: int, **changes: object) -> Page:
    values = {**root.open(url(pk)).form, **changes}
    answer = root.client.post(url(pk), values)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    return root.open(answer.url)  # type: ignore[attr-defined]


def test_priority_and_time_are_changed_and_it_is_logged(root: Visitor, clock: Clock) -> None:
    pk = send(delay_ms=HOUR_MS)
    later = clock.at + dt.timedelta(days=2)
    page = save(root, pk, priority=50, dequeue_at=later.strftime("%Y-%m-%d %H:%M:%S"))
    assert page.said == [f"Message {pk} was changed."]
    changed = Message.objects.get()
    assert changed.priority == 50
    assert to_epoch_ms(changed.dequeue_at) // 1000 == to_epoch_ms(later) // 1000
    [entry] = LogEntry.objects.all()
    assert entry.get_change_message() == "Changed Dequeue at and Priority."


def test_saving_what_is_there_changes_nothing(root: Visitor, clock: Clock) -> None:
    for dequeue_at in (-(2**63), 2**63 - 1, 1_234):
        pk = send(dequeue_at=dequeue_at)
        save(root, pk)
        assert to_epoch_ms(Message.objects.get(pk=pk).dequeue_at) == dequeue_at


def test_a_message_that_waits_for_others_has_a_priority_and_no_time(root: Visitor) -> None:
    other = send(queue="other")
    pk = send(after=functions.After((other,)))
    page = root.open(url(pk))
    assert set(page.form) == {"priority"}
    assert page.fields["dequeue at"].text == "when the others have ended"
    save(root, pk, priority=5, dequeue_at="2000-01-01 00:00:00")
    message = Message.objects.get(pk=pk)
    assert (message.priority, message.after_ids) == (5, [other])
    assert not functions.message_move(connection, pk, dequeue_at=0), "nor does any other caller move it by accident"


def test_the_form_of_a_quarantined_message_has_the_time_at_which_it_is_taken_alone(root: Visitor, clock: Clock) -> None:
    pk = send()
    [held] = claim()
    functions.worker_died(connection, held.worker, ids=[pk], attempts=[held.attempt], running=[True])
    alone_at = Message.objects.get(pk=pk).alone_at
    assert root.open(url(pk)).form["dequeue_at"].startswith(clock.at.strftime("%Y-%m-%d %H:%M:%S"))
    save(root, pk, priority=5)
    assert Message.objects.get(pk=pk).alone_at == alone_at
    save(root, pk, dequeue_at="2000-01-01 00:00:00")
    moved = Message.objects.get(pk=pk).alone_at
    assert moved is not None
    assert to_epoch_ms(moved) == 946_684_800_000


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"priority": "101"}, "priority"), ({"priority": ""}, "priority"), ({"dequeue_at": "soon"}, "dequeue_at")],
)
def test_an_invalid_value_is_an_error_of_its_field(root: Visitor, changes: dict[str, str], error: str) -> None:
    pk = send()
    answer = root.client.post(url(pk), {**root.open(url(pk)).form, **changes})
    assert answer.status_code == 200
    assert list(answer.context["adminform"].form.errors) == [error]
    assert "It is ready: position 1" in answer.content.decode(), "the page is whole all the same"


def test_a_message_that_a_worker_took_meanwhile_is_not_changed(root: Visitor) -> None:
    pk = send()
    values = root.open(url(pk)).form
    [held] = claim()
    answer = root.client.post(url(pk), {**values, "priority": 9}, follow=True)
    assert TAKEN in answer.content.decode()
    assert Message.objects.get().priority == 0
    assert root.open(url(pk)).form == {}
    complete(held)
    gone = root.client.post(url(pk), {**values, "priority": 9}, follow=True)
    assert f"Message {pk} is not in the queue (any more)" in gone.content.decode()
    assert not LogEntry.objects.exists()


def test_a_locked_message_is_neither_rescheduled_nor_prioritised(db: None) -> None:
    pk = send()
    claim()
    assert not functions.message_prioritise(connection, pk, 9)
    assert not functions.message_move(connection, pk, dequeue_at=0)


def test_run_now_is_pressed_and_leads_back_to_the_page(root: Visitor) -> None:
    pk = send(delay_ms=HOUR_MS)
    page = root.press(root.open(url(pk)), "Run now")
    assert page.response.request["PATH_INFO"] == url(pk)
    assert page.said == ["1 message made ready to run now."]
    assert page.fields["status"].text == "ready"
    assert page.buttons == ["Postpone…", "Cancel…"]


def test_cancel_is_pressed_asked_about_and_leads_to_the_history(root: Visitor) -> None:
    pk = send()
    question = root.press(root.open(url(pk)), "Cancel…")
    assert question.root.one("a", class_="closelink").attributes["href"] == url(pk)
    assert Message.objects.exists()
    page = root.confirm(question)
    assert page.response.request["PATH_INFO"] == ATTEMPTS
    assert page.said[0] == "1 message cancelled."
    assert page.column("status") == ["cancelled"]


def test_a_running_message_can_be_asked_to_stop(root: Visitor, clock: Clock) -> None:
    pk = send()
    claim()
    assert root.open(url(pk)).buttons == ["Ask to stop…"]
    page = root.confirm(root.press(root.open(url(pk)), "Ask to stop…"))
    assert page.said == ["1 message asked to stop."]
    assert f"asked to stop at {clock.at:%Y-%m-%d %H:%M:%S}" in page.fields["lock"].text
    assert LogEntry.objects.get().change_message == "Asked to stop."


@pytest.mark.parametrize("page", ["https://evil.example/", "//evil.example", "7/../../", ""])
def test_a_request_cannot_redirect_to_another_site(root: Visitor, page: str) -> None:
    data = {"action": "run_now", "_selected_action": send(), "index": 0, "page": page}
    assert root.client.post(MESSAGES, data).url == MESSAGES  # type: ignore[attr-defined]


def test_an_ended_message_is_enqueued_again_from_the_page_of_its_attempt(root: Visitor) -> None:
    send()
    complete(claim()[0])
    ended = Attempt.objects.get()
    page = root.open(f"{ATTEMPTS}{ended.pk}/change/")
    assert page.buttons == ["Enqueue again"]
    again = root.press(page, "Enqueue again")
    [made] = Message.objects.all()
    assert again.response.request["PATH_INFO"] == f"{ATTEMPTS}{ended.pk}/change/"
    assert again.said == [f"1 message enqueued again: {made.pk}"]
