"""The numbers by which the queue keeps a message out of reach are nobody's business: people read what it waits for."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.models import Attempt
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKER, claim, send, sign_in

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("clock")

# Both numbers, as digits or with any separators, and the last days of the calendar, and years that it does not have.
SECRET = re.compile(r"9\D?223\D?372\D?036\D?854\D?775|9999-12-\d\d|\b\d{5,}-\d\d-\d\d")


def of_each_kind() -> dict[str, int]:
    """Messages that wait for something other than a time, or for a time that only quarantine knows."""
    found = {"waits for others": send(queue="first", after=functions.After((send(queue="other", delay_ms=1_000),)))}
    for kind in ("parked", "later version", "quarantined", "quarantined and parked"):
        found[kind] = send(queue=kind)
        [held] = claim(kind)
        if "quarantined" in kind:
            functions.worker_died(connection, held.worker, ids=[held.id], attempts=[held.attempt], running=[True])
            if kind == "quarantined":
                continue
            [held] = functions.quarantine_dequeue(
                connection, queues=[kind], exclude_queues=(), lock_ms=60_000, worker=WORKER
            )
        unknown = kind != "later version"
        functions.message_park(connection, [(held, "It is not known.")], worker=WORKER, unknown=unknown)
    return found


def test_no_page_of_the_admin_shows_the_numbers(root: Visitor, clock: Clock) -> None:
    sign_in()
    kinds = of_each_kind()
    statuses = {int(row["id"]): (row["status"], row["dequeue at"]) for row in root.open(MESSAGES).rows}
    now = f"{clock.at:%Y-%m-%d %H:%M:%S} 0 ms ago"
    assert {kind: statuses[pk] for kind, pk in kinds.items()} == {
        "waits for others": ("scheduled waits for others", "when the others have ended"),
        "parked": ("scheduled parked", now),
        "later version": ("scheduled later version", now),
        "quarantined": ("scheduled quarantined", now),
        "quarantined and parked": ("scheduled parked", now),
    }
    pages = [MESSAGES, f"{MESSAGES}?status=scheduled", "/admin/django_pgqueue/overview/", "/admin/"]
    pages += [f"{MESSAGES}{pk}/{page}/" for pk in kinds.values() for page in ("change", "history")]
    for url in pages:
        assert not SECRET.search(root.open(url).response.content.decode()), url
    for action in ("run_now", "postpone", "cancel"):
        for pk in kinds.values():
            page = root.act(MESSAGES, action, [pk], page=pk)
            assert not SECRET.search(page.response.content.decode()), (action, pk)


def test_the_history_of_a_cancelled_message_shows_that_it_waited_for_others(root: Visitor) -> None:
    pk = send(after=functions.After((send(queue="other"),)))
    root.confirm(root.act(MESSAGES, "cancel", [pk]))
    page = root.open(f"{ATTEMPTS}{Attempt.objects.get().pk}/change/")
    assert page.fields["due at"].text == "it waited for others"
    for url in (page.response.request["PATH_INFO"], ATTEMPTS):
        assert not SECRET.search(root.open(url).response.content.decode()), url


@pytest.mark.parametrize(
    "command",
    [("qstatus", "--once"), ("qstatus", "--json"), ("qworker", "--dry-run"), ("qdoctor",), ("qdoctor", "--json")],
    ids=" ".join,
)
def test_no_command_prints_the_numbers(clock: Clock, command: tuple[str, ...]) -> None:
    of_each_kind()
    out = io.StringIO()
    options = {"fail_level": "never"} if command[0] == "qdoctor" else {}
    call_command(*command, stdout=out, **options)
    assert out.getvalue()
    assert not SECRET.search(out.getvalue())


def test_a_time_beyond_the_calendar_is_a_word(root: Visitor) -> None:
    far, early = send(dequeue_at=2**62), send(dequeue_at=-(2**62))
    rows = {int(row["id"]): row["dequeue at"] for row in root.open(MESSAGES).rows}
    assert rows == {far: "after the year 9999", early: "before the year 1"}
    [reason, *_] = root.open(f"{MESSAGES}{far}/change/").reasons
    assert reason == "It is scheduled for after the year 9999."
