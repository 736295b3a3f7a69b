"""Who may decide."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied

from django_pgqueue.durable import decide
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models import Approval, Step
from django_pgqueue.testing import drain
from tests.durable import tasks

pytestmark = pytest.mark.django_db


def user_with(codename: str) -> User:
    user = User.objects.create(username="ada")
    user.user_permissions.add(Permission.objects.get(codename=codename))
    return User.objects.get(pk=user.pk)


def test_a_user_with_the_permission_decides_and_is_recorded() -> None:
    result = tasks.asks.enqueue(to="auth.view_group")
    drain()
    assert decide(result, "ship-abroad", approved=True, user=user_with("view_group"), comment="fine") == "decided"
    drain()
    result.refresh()
    assert result.return_value == [True, "ada", "fine"]
    asked = Approval.objects.get(message_id=result.id)
    kept = Step.objects.get(message_id=result.id, kind="approval", status="done").result or {}  # the history shows it
    assert (kept["approved"], kept["by"], kept["comment"]) == (True, "ada", "fine")
    assert dt.datetime.fromisoformat(kept["at"]) == asked.decided_at


def test_the_longest_name_of_a_user_is_recorded() -> None:
    result = tasks.asks.enqueue()
    drain()
    longest = User.objects.create_superuser("ü" * 150)
    assert decide(result, "ship-abroad", approved=True, user=longest) == "decided"
    drain()
    result.refresh()
    assert result.return_value[1] == "ü" * 150


def test_a_user_who_is_not_active_decides_nothing() -> None:
    result = tasks.asks.enqueue()
    drain()
    with pytest.raises(PermissionDenied):
        decide(result, "ship-abroad", approved=True, user=User.objects.create_superuser("ada", is_active=False))


@pytest.mark.parametrize("to", ["auth.view_group", None])
def test_a_user_without_the_permission_decides_nothing(to: str | None) -> None:
    result = tasks.asks.enqueue(to=to)
    drain()
    with pytest.raises(PermissionDenied, match="ada may not decide 'ship-abroad'"):
        decide(result, "ship-abroad", approved=True, user=user_with("add_group"))
    assert Approval.objects.get().decided_at is None


@pytest.mark.parametrize("approved", ["no", 1, None])
def test_a_decision_is_true_or_false(approved: Any) -> None:
    result = tasks.asks.enqueue()
    drain()
    with pytest.raises(InvalidMessage, match=f"^approved must be True or False, not {approved!r}"):
        decide(result, "ship-abroad", approved=approved, user=User.objects.create_superuser("ada"))
    assert Approval.objects.get(message_id=result.id).approved is None


@pytest.mark.parametrize("comment", ["a\0b", "\ud800", "é" * 5001], ids=["NUL", "surrogate", "too long"])
def test_a_comment_that_cannot_be_stored_is_refused_in_python(comment: str) -> None:
    result = tasks.asks.enqueue(to="auth.view_group")
    drain()
    user = user_with("view_group")
    with pytest.raises(InvalidMessage, match="cannot be stored: it may have 10,000 bytes"):
        decide(result, "ship-abroad", approved=True, user=user, comment=comment)
    for message, name in ((2**63, "ship-abroad"), ("no-id", "ship-abroad"), (int(result.id), "a\0b")):
        with pytest.raises(InvalidMessage):
            decide(message, name, approved=True, user=user)
    assert Approval.objects.get().decided_at is None


@pytest.mark.parametrize("kind", [str, int])
def test_the_id_of_a_result_does_as_well(kind: type[str | int]) -> None:
    result = tasks.asks.enqueue(to="auth.view_group")
    drain()
    assert decide(kind(result.id), "ship-abroad", approved=True, user=user_with("view_group")) == "decided"


def test_who_may_run_messages_decides_where_no_permission_is_named() -> None:
    result = tasks.asks.enqueue()
    drain()
    assert decide(result, "ship-abroad", approved=False, user=user_with("run_message")) == "decided"


def test_who_is_asked_for_a_permission_meanwhile_decides_nothing() -> None:
    """Whoever may run messages could otherwise send decisions until one comes as the job asks."""
    result = tasks.asks.enqueue(to="auth.view_group")

    class Runner:
        def has_perm(self, perm: str, obj: Any = None) -> bool:  # noqa: ARG002 -- as Django's users have it
            if not Approval.objects.exists():
                drain()
            return perm == "django_pgqueue.run_message"

        def get_username(self) -> str:
            return "eve"

    with pytest.raises(PermissionDenied, match="eve may not decide 'ship-abroad'"):
        decide(result, "ship-abroad", approved=True, user=Runner())
    assert all(approval.decided_at is None for approval in Approval.objects.all())
