"""Durable tasks in the admin: why they wait, their steps, and decisions."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.message import approvals
from django_pgqueue.functions import Wait
from django_pgqueue.models import Approval, Attempt, Ended, Event, Message, Step
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, TASK, claim, fail, send, sign_in, visitor_of

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = [pytest.mark.usefixtures("clock"), pytest.mark.once]
APPROVALS = f"{MESSAGES}approvals/"


def suspend(wait: Wait, *, step: str | None = None) -> int:
    sign_in()
    send(task=TASK)
    [held] = claim()
    if step is not None:
        functions.step_record(connection, held, step, result='{"charge": "<b>ch_1</b>"}')
    functions.message_suspend(connection, held, wait)
    return held.id


def ask(name: str = "ship", permission: str | None = "auth.view_group", details: str | None = None) -> int:
    sign_in()
    send(task=TASK)
    [held] = claim()
    event = f"pgqueue:approval:{held.id}:{name}"
    wait = Wait(name=name, kind="approval", event=event, permission=permission, details=details)
    functions.message_suspend(connection, held, wait)
    return held.id


def staff(*codenames: str) -> Visitor:
    user = User.objects.create(username="ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return visitor_of(user)


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (Wait(name="nap", delay_ms=3_600_000), ": it sleeps until"),
        (Wait(name="p", kind="event", event="paid:7"), ": it waits for the event “paid:7”."),
        (Wait(name="p", kind="event", event="paid:7", delay_ms=60_000), "it waits for the event “paid:7”, until"),
        (Wait(name="a:b", kind="approval", event=None), "it waits for the decision “a:b”."),
    ],
)
def test_a_page_says_what_a_suspended_task_waits_for(root: Visitor, wait: Wait, expected: str) -> None:
    page = root.open(f"{MESSAGES}{suspend(wait)}/change/").root
    assert expected in page.text
    assert "It is suspended since" in page.text
    assert "9223372036854775807" not in page.text


@pytest.mark.parametrize("wait", [Wait(name="p", kind="event", event="paid:7"), Wait(name="ok", kind="approval")])
def test_a_page_says_that_what_a_task_waits_for_has_come(root: Visitor, clock: Clock, wait: Wait) -> None:
    pk = suspend(wait)
    page = f"{MESSAGES}{pk}/change/"
    began = root.open(page).root.text.partition("It is suspended since ")[2].partition(":")[0]
    clock.advance(dt.timedelta(hours=1))
    if wait.event is None:
        assert functions.approval_decide(connection, pk, "ok", approved=True, by="ada", comment=None) == "decided"
    else:
        functions.event_emit(connection, wait.event, "{}")
    what = "for the decision “ok”, made at" if wait.event is None else "for the event “paid:7”, emitted at"
    text = root.open(page).root.text
    assert f"It waits since {began}" in text
    assert what in text
    assert "A worker will notice this soon." in text
    Ended.objects.all().delete()
    text = root.open(page).root.text
    assert what in text
    assert "which has not woken it. Run it now" in text


def test_a_page_says_since_when_a_task_waits_for_its_children(root: Visitor) -> None:
    child = send(delay_ms=3_600_000)
    text = root.open(f"{MESSAGES}{suspend(Wait(after_ids=(child,)))}/change/").root.text
    assert "It waits for 1 job" in text
    assert "It is suspended since" in text


def test_the_list_says_that_a_task_is_suspended(root: Visitor) -> None:
    suspend(Wait(name="p", kind="event", event="paid:7"))
    text = root.open(MESSAGES).root.text
    assert "suspended" in text
    assert "when its event has come" in text


def test_a_page_shows_the_steps_and_their_values_by_permission(root: Visitor) -> None:
    pk = suspend(Wait(name="p", kind="event", event="paid:7"), step="charge <i>")
    text = root.open(f"{MESSAGES}{pk}/change/").root.text
    assert "charge <i>" in text  # as text
    assert '"charge": "<b>ch_1</b>"' in text
    assert "step, attempt 1 " in text, "nobody said when it began"
    text = staff("view_message").open(f"{MESSAGES}{pk}/change/").root.text
    assert "charge <i>" in text
    assert "ch_1" not in text


def test_steps_stand_in_the_order_of_attempts_whatever_the_clock_did_between_them(root: Visitor) -> None:
    pk = suspend(Wait(name="second", delay_ms=60_000), step="first")
    first = Step.objects.get(name="first")
    Step.objects.filter(name="second").update(attempt=2, finished_at=first.finished_at - dt.timedelta(hours=1))
    text = root.open(f"{MESSAGES}{pk}/change/").root.text.partition("ch_1")
    assert "first" in text[0]
    assert "sleep, attempt 2" in text[2]


def test_a_person_with_the_permission_approves(clock: Clock) -> None:
    pk = ask(details='{"order": "<b>7</b>"}')
    ada = staff("view_group")
    text = ada.open(APPROVALS).root.text
    assert f"Message {pk}" in text
    assert '"order": "<b>7</b>"' in text
    links = [link.attributes["href"] for link in ada.open(APPROVALS).root.one(class_="breadcrumbs").all("a")]
    assert links == ["/admin/"], "she may see no other page of the queue"
    assert decide(ada, pk).status_code == 302
    approval = Approval.objects.get()
    assert (approval.approved, approval.decided_by, approval.comment) == (True, "ada", "fine")
    assert "Nothing waits for your decision." in ada.open(APPROVALS).root.text
    functions.message_settle(connection)
    assert Message.objects.get(pk=pk).dequeue_at == clock.at.replace(microsecond=clock.at.microsecond // 1000 * 1000)


def decide(visitor: Visitor, pk: int, decision: str = "approve", name: str = "ship") -> Any:
    asked = {"message_id": str(pk), "name": name, "decision": decision, "comment": "fine"}
    return visitor.client.post(APPROVALS, asked)


def test_a_person_without_the_permission_sees_no_details_and_decides_nothing() -> None:
    pk = ask(details='{"order": 7}')
    ada = staff("view_message")
    text = ada.open(APPROVALS).root.text
    assert "You have no permission to decide this." in text
    assert "order" not in text.replace("reorder", "")
    decide(ada, pk)
    assert Approval.objects.get().decided_at is None
    assert "You have no permission to decide this." in ada.open(APPROVALS).root.text


def test_a_second_decision_and_one_for_a_cancelled_job_are_told(root: Visitor) -> None:
    first, second = ask(), ask("other")
    decide(root, first)
    decide(root, first, "reject")
    assert "This was decided before" in root.open(APPROVALS).root.text
    functions.message_cancel(connection, [second])
    decide(root, second, name="other")
    assert "The job has ended or was cancelled meanwhile" in root.open(APPROVALS).root.text
    assert Approval.objects.get(message_id=first).approved is True
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(first), f"ship of message {first} was approved.")
    assert entry.change_message in root.open(f"{MESSAGES}{first}/history/").root.text


def test_the_log_takes_the_name_of_a_decision_without_what_no_text_can_have(root: Visitor) -> None:
    pk = ask()
    assert decide(root, pk, name="sh\0ip").status_code == 302
    assert LogEntry.objects.get().change_message == f"ship of message {pk} was approved."


def test_a_visitor_who_is_no_member_of_staff_decides_nothing() -> None:
    pk = ask(permission="auth.view_group")
    user = User.objects.create_user("bob")
    user.user_permissions.set(Permission.objects.filter(codename="view_group"))
    decide(visitor_of(user), pk)
    assert Approval.objects.get().decided_at is None


def test_suspended_jobs_are_listed_by_what_they_wait_for(root: Visitor) -> None:
    for number in range(3):
        suspend(Wait(name="p", kind="event", event=f"paid:{number}"))
    suspend(Wait(name="nap", delay_ms=3_600_000))
    suspend(Wait(name="p", kind="event", event=":7"))
    ask()
    page = root.open(APPROVALS)
    rows = [
        [cell.text for cell in row.all("td")][:2]
        for row in page.root.one("table", class_="pgqueue-table").all("tr")[1:]
    ]
    assert rows[0] == ["the event paid:…", "3"]
    assert sorted(rows[1:]) == [["a decision", "1"], ["a time", "1"], ["the event :…", "1"]]


def test_what_others_decide_does_not_hide_what_a_user_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "SHOWN", 1)
    for _ in range(2):
        ask("of others", permission="auth.delete_group")
    ask("of ada", details="1" + "0" * 5000)  # SQL may store what Python refuses to read
    text = staff("view_group").open(APPROVALS).root.text
    assert "of ada" in text
    assert "of others" not in text


# Run again from a step


def ended() -> tuple[int, str]:
    """Returns a message that failed after two steps, and the page of its last attempt."""
    sign_in()
    send(task=TASK)
    [held] = claim()
    for name in ("reserve <i>", "charge"):
        functions.step_record(connection, held, name, result='"ch_1"')
    fail(held)
    return held.id, f"{ATTEMPTS}{Attempt.objects.get(message_id=held.id).pk}/change/"


def test_the_history_shows_the_steps_and_runs_a_message_again_from_one(root: Visitor) -> None:
    pk, page = ended()
    shown = root.open(page).root
    assert "reserve <i>" in shown.text
    assert "ch_1" in shown.text
    [_, button] = [one for one in shown.all("button") if one.text == "Run again from here"]
    told = root.client.post(button.attributes["formaction"], {"step": button.attributes["value"]}, follow=True)
    [message] = Message.objects.all()
    assert told.redirect_chain[-1][0] == f"{MESSAGES}{message.pk}/change/"
    assert f"Message {message.pk} runs message {pk} again from charge." in told.content.decode()
    assert list(Step.objects.filter(message_id=message.pk).values_list("name", flat=True)) == ["reserve <i>"]
    sent = {
        field.attributes["name"]: field.attributes["value"] for field in root.open(page).root.all("input", name="seen")
    }
    for expected in ("runs message", "Not done once more"):
        again = root.client.post(button.attributes["formaction"], {**sent, "step": "charge"}, follow=True)
        assert expected in again.content.decode()
    assert Message.objects.count() == 2
    text = root.client.post(button.attributes["formaction"], {"step": "another"}, follow=True).content.decode()
    assert f"message {pk} has no step another. Choose one" in text


def test_who_may_not_run_messages_sees_the_steps_without_buttons_and_values() -> None:
    pk, page = ended()
    ada = staff("view_attempt", "view_message")
    shown = ada.open(page).root
    assert "reserve <i>" in shown.text
    assert "ch_1" not in shown.text
    assert "Run again" not in shown.text
    address = f"{ATTEMPTS}{pk}/from-step/"
    assert ada.client.post(address, {"step": "charge"}).status_code == 403
    assert ada.client.get(address).status_code == 405
    assert not Message.objects.exists()


# Emit


def emit(visitor: Visitor, pk: int, payload: str) -> str:
    asked = {"action": "emit", "index": "0", "_selected_action": str(pk), "page": str(pk), "newest": str(pk)}
    answer = visitor.client.post(MESSAGES, {**asked, "payload": payload, "confirmed": "Emit it"}, follow=True)
    return answer.content.decode()


def test_a_person_with_the_permission_emits_what_a_task_waits_for() -> None:
    pk = suspend(Wait(name="p", kind="event", event="paid:7"))
    assert "Emit its event" not in staff("view_message", "run_message").open(f"{MESSAGES}{pk}/change/").root.text
    ada = User.objects.get(username="ada")
    ada.user_permissions.add(Permission.objects.get(codename="emit_event"))
    visitor = visitor_of(ada)
    assert "Emit its event…" in visitor.open(f"{MESSAGES}{pk}/change/").root.text
    for wrong, expected in (("{", "not JSON"), ("null", "gets null"), ("[NaN]", "NaN and Infinity")):
        assert expected in emit(visitor, pk, wrong)
    assert "1 message got the event that they waited for" in emit(visitor, pk, '{"charge": "ch_1"}')
    assert Event.objects.get().payload == {"charge": "ch_1"}
    functions.message_settle(connection)
    assert Message.objects.get().awaited_event is None
    assert "1 not waiting for an event" in emit(visitor, pk, "{}")


def test_a_decision_cannot_be_emitted(root: Visitor) -> None:
    pk = ask()
    assert "Emit its event" not in root.open(f"{MESSAGES}{pk}/change/").root.text
    emit(root, pk, "{}")
    assert not Event.objects.exists()


def test_the_approvals_say_the_zone_of_their_times(root: Visitor) -> None:
    assert "time zone" not in root.open(APPROVALS).root.text
    ask()
    assert root.open(APPROVALS).root.text.count("time zone UTC") == 1
