"""Projects whose transactions see one snapshot: ``isolation_level`` in the OPTIONS of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.parts import audit_log
from django_pgqueue.models import Message
from tests.support.address import conninfo
from tests.support.fixtures.admin import MESSAGES, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.django_db(transaction=True)
CHANGE = "update pgqueue_message set priority = priority + 1"


@pytest.fixture(autouse=True)
def serializable(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[None]:
    connection.close()
    options = {"isolation_level": psycopg.IsolationLevel.SERIALIZABLE}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", connection.settings_dict["OPTIONS"] | options)
    yield
    connection.close()


def test_what_others_changed_meanwhile_is_not_changed_and_not_said_to_be(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = send()
    cancel, log = functions.message_cancel, audit_log.written

    def others_come_first(*args: Any) -> set[int]:
        with psycopg.connect(conninfo(), autocommit=True) as other:
            other.execute(CHANGE)
        return cancel(*args)

    def others_meet_it(*args: Any) -> None:
        """The message of success has been said, and then the transaction fails."""
        log(*args)
        with connection.cursor() as cursor:
            cursor.execute("do $$ begin raise serialization_failure; end $$")

    for where, name, meet in ((functions, "message_cancel", others_come_first), (audit_log, "written", others_meet_it)):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, meet)
            page = root.confirm(root.act(MESSAGES, "cancel", [pk]))
        assert page.said == ["Somebody else changed the same rows at this moment. Nothing was changed: try again."]
        assert Message.objects.filter(pk=pk).exists()
        assert not LogEntry.objects.exists()
    assert root.confirm(root.act(MESSAGES, "cancel", [pk])).said == ["1 message cancelled."]
