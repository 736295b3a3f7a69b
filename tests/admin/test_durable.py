"""Durable tasks in the admin: why they wait, their steps, and decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.message import approvals
from django_pgqueue.functions import Wait
from django_pgqueue.models import Approval, Message
from tests.support.fixtures.admin import MESSAGES, TASK, claim, send, sign_in, visitor_of

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
        (Wait(name="nap", delay_ms=3_600_000), "It is suspended: it sleeps until"),
        (Wait(name="p", kind="event", event="paid:7"), "It is suspended: it waits for the event “paid:7”."),
        (Wait(name="p", kind="event", event="paid:7", delay_ms=60_000), "it waits for the event “paid:7”, until"),
        (Wait(name="o", kind="approval", event="pgqueue:approval:1:a:b"), "it waits for the decision “a:b”."),
    ],
)
def test_a_page_says_what_a_suspended_task_waits_for(root: Visitor, wait: Wait, expected: str) -> None:
    page = root.open(f"{MESSAGES}{suspend(wait)}/change/").root
    assert expected in page.text
    assert "9223372036854775807" not in page.text


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
    text = staff("view_message").open(f"{MESSAGES}{pk}/change/").root.text
    assert "charge <i>" in text
    assert "ch_1" not in text


def test_a_person_with_the_permission_approves(clock: Clock) -> None:
    pk = ask(details='{"order": "<b>7</b>"}')
    ada = staff("view_group")
    text = ada.open(APPROVALS).root.text
    assert f"Message {pk}" in text
    assert '"order": "<b>7</b>"' in text
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
    ask()
    page = root.open(APPROVALS)
    rows = [
        [cell.text for cell in row.all("td")][:2]
        for row in page.root.one("table", class_="pgqueue-table").all("tr")[1:]
    ]
    assert rows[0] == ["the event paid:…", "3"]
    assert sorted(rows[1:]) == [["a decision", "1"], ["a time", "1"]]


def test_what_others_decide_does_not_hide_what_a_user_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "SHOWN", 1)
    for _ in range(2):
        ask("of others", permission="auth.delete_group")
    ask("of ada", details="1" + "0" * 5000)  # SQL may store what Python refuses to read
    text = staff("view_group").open(APPROVALS).root.text
    assert "of ada" in text
    assert "of others" not in text
