from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.parts import actions
from django_pgqueue.admin.parts.paginator import CappedPaginator
from django_pgqueue.models import Attempt, Message
from django_pgqueue.monitoring.overview import limits
from django_pgqueue.values.times import to_epoch_ms
from tests.support.address import conninfo
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, lose, send, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("clock")

HOUR_MS = 3_600_000


def due(pk: int) -> int:
    return to_epoch_ms(Message.objects.get(pk=pk).dequeue_at)


def expired() -> int:
    pk = send(queue="expired")
    lose("expired")
    return pk


class TestRunNow:
    def test_scheduled_messages_are_ready_at_once(self, root: Visitor) -> None:
        sent = [send(delay_ms=HOUR_MS), send(delay_ms=2 * HOUR_MS)]
        page = root.act(MESSAGES, "run_now", sent)
        assert page.said == ["2 messages made ready to run now."]
        assert page.column("status") == ["ready", "ready"]
        assert {message.id for message in claim(limit=5)} == set(sent)

    def test_a_ready_message_keeps_its_place_in_the_queue(self, root: Visitor) -> None:
        first = send(dequeue_at=-5)
        page = root.act(MESSAGES, "run_now", [first])
        assert page.said == [f"Not changed: 1 already ready ({first})."]
        assert due(first) == -5

    def test_messages_that_were_not_moved_are_reported_with_reason(self, root: Visitor) -> None:
        scheduled, gone, running = send(delay_ms=HOUR_MS), send(queue="a"), send(queue="b")
        complete(claim("a")[0])
        claim("b")
        lost = expired()
        page = root.act(MESSAGES, "run_now", [scheduled, gone, running, lost])
        assert page.said == [
            "1 message made ready to run now.",
            (
                f"Not changed: 1 no longer in the queue ({gone}); "
                f"1 waiting for another worker, because its worker is gone ({lost}); 1 running ({running})."
            ),
        ]

    def test_a_message_that_left_the_filtered_list_is_reported(self, root: Visitor) -> None:
        pk = send()
        claim()
        page = root.act(f"{MESSAGES}?status=ready", "run_now", [pk])
        assert page.said == [f"Not changed: 1 running ({pk})."]


class TestRunNowWithoutTheOthers:
    """A message that waits for others runs before they have ended only if a user was told what that means."""

    def waiting(self, **more: Any) -> tuple[int, int, int]:
        """Two messages, of which one runs, and one that waits for both."""
        running, ready = send(queue="a"), send(queue="b")
        claim("a")
        return running, ready, send(after=functions.After((running, ready), **more))

    def test_a_selection_leaves_messages_out_that_wait_for_others(self, root: Visitor) -> None:
        _, ready, pk = self.waiting()
        scheduled = send(delay_ms=HOUR_MS)
        page = root.act(MESSAGES, "run_now", [scheduled, pk])
        assert page.said == [
            "1 message made ready to run now.",
            f"1 waits for others and was left out ({pk}). Open it to run it all the same.",
        ]
        other = send(after=functions.After((ready,)))
        page = root.act(MESSAGES, "run_now", [pk, other], confirmed="yes")
        assert page.said == [f"2 wait for others and were left out ({pk}, {other}). Open one to run it all the same."]
        assert Message.objects.filter(after_ids__isnull=False).count() == 2

    def test_a_page_asks_and_names_those_that_have_not_ended(self, root: Visitor) -> None:
        running, ready, pk = self.waiting()
        page = root.open(f"{MESSAGES}{pk}/change/")
        assert page.buttons == ["Run now…", "Cancel…"]
        question = root.press(page, "Run now…")
        assert question.root.one("h1").text == "Run 1 message without waiting for others?"
        text = question.root.one(id="content-main").text
        assert "It waits for 2 jobs, of which 2 have not ended yet (1 running, 1 waiting)." in text
        assert f"Not ended: {running} (running), {ready} (ready)." in text
        assert "If you run it now, it does not wait for them any more." in text
        assert "although one of them fails" not in text
        assert Message.objects.get(pk=pk).after_ids == [running, ready], "nothing is done by asking"

    def test_the_answer_breaks_the_dependency(self, root: Visitor) -> None:
        *_, pk = self.waiting()
        page = root.confirm(root.press(root.open(f"{MESSAGES}{pk}/change/"), "Run now…"))
        assert page.response.request["PATH_INFO"] == f"{MESSAGES}{pk}/change/"
        assert page.said == ["1 message made ready to run now, without waiting for others."]
        assert [message.id for message in claim()] == [pk]
        [entry] = LogEntry.objects.all()
        assert entry.change_message == "Made ready to run now, without waiting for others."

    def test_the_question_says_that_a_failure_does_not_cancel_it_any_more(self, root: Visitor) -> None:
        *_, pk = self.waiting(policy="succeeded")
        question = root.press(root.open(f"{MESSAGES}{pk}/change/"), "Run now…")
        assert "It runs although one of them fails." in question.root.one(id="content-main").text

    def test_the_question_names_twenty_and_counts_the_rest(self, root: Visitor) -> None:
        pk = send(after=functions.After(tuple(send(queue="a") for _ in range(23))))
        question = root.press(root.open(f"{MESSAGES}{pk}/change/"), "Run now…")
        text = question.root.one(id="content-main").text
        assert "of which 23 have not ended yet (23 waiting)." in text
        assert " and 3 more." in text

    def test_a_message_that_needs_not_wait_any_more_runs_as_others_do(self, root: Visitor) -> None:
        first = send(queue="a")
        pk = send(after=functions.After((first,)))
        question = root.press(root.open(f"{MESSAGES}{pk}/change/"), "Run now…")
        complete(claim("a")[0])
        functions.message_settle(connection)
        assert root.confirm(question).said == [f"Not changed: 1 already ready ({pk})."]


class TestPostpone:
    def test_a_message_that_waits_for_others_is_not_postponed(self, root: Visitor) -> None:
        first = send(queue="a")
        pk = send(after=functions.After((first,)))
        page = root.confirm(root.act(MESSAGES, "postpone", [pk]))
        assert page.said == [f"Not changed: 1 waiting for others, and not for a time ({pk})."]
        assert Message.objects.get(pk=pk).after_ids == [first]

    def test_a_quarantined_message_is_postponed_and_run_now_in_quarantine(self, root: Visitor, clock: Clock) -> None:
        pk = send()
        [held] = claim()
        functions.worker_died(connection, held.worker, ids=[pk], attempts=[held.attempt], running=[True])
        page = root.act(MESSAGES, "run_now", [pk])
        assert page.said == [f"Not changed: 1 quarantined and due: a worker takes it when it runs nothing else ({pk})."]
        assert root.open(f"{MESSAGES}{pk}/change/").buttons == ["Postpone…", "Cancel…"]
        root.confirm(root.act(MESSAGES, "postpone", [pk]))
        alone_at = Message.objects.get(pk=pk).alone_at
        assert alone_at is not None
        assert to_epoch_ms(alone_at) == to_epoch_ms(clock.at) + HOUR_MS
        assert root.act(MESSAGES, "run_now", [pk]).said == ["1 message made ready to run now."]
        alone_at = Message.objects.get(pk=pk).alone_at
        assert alone_at is not None, "it is still taken alone"
        assert to_epoch_ms(alone_at) == to_epoch_ms(clock.at)

    def test_postpone_asks_for_the_new_time(self, root: Visitor, clock: Clock) -> None:
        pk = send()
        question = root.act(MESSAGES, "postpone", [pk])
        assert question.root.one("h1").text == "Postpone 1 message?"
        assert [option.text for option in question.root.one("select", name="delay").all("option")] == [
            f"{delay} from now" for delay in ("1 minute", "10 minutes", "1 hour", "1 day", "1 week")
        ]
        assert due(pk) == to_epoch_ms(clock.at), "nothing is done by asking"
        page = root.confirm(question)
        assert page.said == ["1 message postponed: 1 hour from now."]
        assert due(pk) == to_epoch_ms(clock.at) + HOUR_MS

    def test_the_delay_can_be_chosen(self, root: Visitor, clock: Clock) -> None:
        pk = send()
        root.confirm(root.act(MESSAGES, "postpone", [pk]), delay="1 day")
        assert due(pk) == to_epoch_ms(clock.at) + 24 * HOUR_MS

    def test_an_unknown_delay_is_asked_for_again(self, root: Visitor, clock: Clock) -> None:
        pk = send()
        again = root.confirm(root.act(MESSAGES, "postpone", [pk]), delay="for ever")
        assert "Select a valid choice." in again.root.one("ul", class_="errorlist").text
        assert due(pk) == to_epoch_ms(clock.at)

    def test_a_message_scheduled_for_later_is_not_brought_forward(self, root: Visitor, clock: Clock) -> None:
        tomorrow = send(delay_ms=24 * HOUR_MS)
        page = root.confirm(root.act(MESSAGES, "postpone", [tomorrow]))
        assert page.said == [f"Not changed: 1 scheduled for later than that ({tomorrow})."]
        assert due(tomorrow) == to_epoch_ms(clock.at) + 24 * HOUR_MS

    def test_a_running_message_is_not_postponed(self, root: Visitor) -> None:
        running = send()
        claim()
        page = root.confirm(root.act(MESSAGES, "postpone", [running]))
        assert page.said == [f"Not changed: 1 running ({running})."]


class TestCancel:
    def test_cancel_asks_for_confirmation(self, root: Visitor) -> None:
        sent = [send(task="tasks.<b>"), send(task=None, delay_ms=HOUR_MS)]
        question = root.act(MESSAGES, "cancel", sent)
        assert question.root.one("h1").text == "Cancel 2 messages?"
        rows = [[cell.text for cell in row.all("td")] for row in question.root.one("tbody").all("tr")]
        assert rows == [
            [str(sent[1]), "raw message", "default", "scheduled"],
            [str(sent[0]), "<b> tasks", "default", "ready"],
        ]
        assert Message.objects.count() == 2, "nothing is done by asking"
        assert root.confirm(question).said == ["2 messages cancelled."]
        assert Message.objects.count() == 0
        assert set(Attempt.objects.values_list("message_id", "status")) == {(pk, "cancelled") for pk in sent}

    def test_the_question_can_be_declined(self, root: Visitor) -> None:
        pk = send(queue="mail")
        question = root.act(f"{MESSAGES}?queue=mail", "cancel", [pk])
        assert question.root.one("a", class_="closelink").attributes["href"] == f"{MESSAGES}?queue=mail"

    def test_running_messages_are_asked_to_stop_and_ended_ones_are_reported(self, root: Visitor) -> None:
        running, waiting, ended = send(queue="a"), send(), send(queue="b")
        claim("a")
        question = root.act(MESSAGES, "cancel", [running, waiting, ended])
        complete(claim("b")[0])
        assert root.confirm(question).said == [
            "1 message cancelled.",
            "1 message asked to stop.",
            f"Not changed: 1 no longer in the queue ({ended}).",
        ]
        assert Message.objects.get(pk=running).cancel_requested_at is not None

    def test_a_message_with_an_expired_lock_is_cancelled(self, root: Visitor) -> None:
        assert root.confirm(root.act(MESSAGES, "cancel", [expired()])).said == ["1 message cancelled."]

    def test_all_rows_of_a_filter_can_be_selected(self, root: Visitor) -> None:
        mails = [send(queue="mail") for _ in range(60)]
        other = send()
        url = f"{MESSAGES}?queue=mail"
        question = root.act(url, "cancel", mails[-1:], select_across=1)
        assert question.root.one("h1").text == "Cancel 60 messages?"
        assert "and 40 more" in question.root.one(id="content-main").text
        later = send(queue="mail")
        confirmed = root.client.post(
            url,
            {
                "action": "cancel",
                "_selected_action": mails[-1:],
                "select_across": 1,
                "newest": max(mails),
                "confirmed": "Cancel them",
            },
        )
        assert confirmed.status_code == 302
        assert set(Message.objects.values_list("pk", flat=True)) == {other, later}, (
            "what came later was not asked about"
        )

    def test_nothing_is_done_without_a_selection(self, root: Visitor) -> None:
        send()
        page = root.act(MESSAGES, "cancel", [])
        assert page.said == ["Items must be selected in order to perform actions on them. No items have been changed."]

    def test_one_action_changes_at_most_the_rows_that_a_list_shows(
        self, root: Visitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert actions.MOST == CappedPaginator.CAP
        monkeypatch.setattr(actions, "MOST", 3)
        sent = [send(delay_ms=HOUR_MS) for _ in range(5)]
        page = root.act(MESSAGES, "run_now", sent, select_across=1)
        assert page.said == ["3 messages made ready to run now.", "The action took only the first 3 rows."]


def test_messages_that_a_worker_takes_before_the_change_are_reported(clock: Clock) -> None:
    pk = send()
    claim(lock_ms=1_000)
    # Seen at a time when the lock has run out; the database's own clock says that it has not.
    outcome = actions.cancel(actions.Chosen([pk], []), clock.at + dt.timedelta(hours=1), using="default")
    assert outcome.done == []
    assert outcome.passed == {"waiting for another worker, because its worker is gone": [pk]}


def test_a_long_list_of_ids_is_shortened() -> None:
    assert actions.listed(list(range(1, 13))) == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"


class TestTooLong:
    """Nothing of the admin keeps the database busy, or waits, for longer than some seconds."""

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "50ms")

    @pytest.mark.django_db(transaction=True)
    def test_a_row_lock_of_another_session_does_not_block_the_admin(self, root: Visitor) -> None:
        pk = send(delay_ms=HOUR_MS)
        act = {"action": "run_now", "_selected_action": [pk], "index": 0}
        asks: list[tuple[Callable[[], Any], str]] = [
            (lambda: root.client.post(f"{MESSAGES}?queue=default", act), f"{MESSAGES}?queue=default"),
            (lambda: root.client.get(MESSAGES, {"queue": "default"}), MESSAGES),
            (lambda: root.client.get(f"{MESSAGES}{pk}/change/"), MESSAGES),
        ]
        for ask, leads_to in asks:
            with psycopg.connect(conninfo()) as other:
                other.execute("lock table pgqueue_message in access exclusive mode")
                answer = ask()
            assert answer.url == leads_to
            page = root.open(answer.url)
            assert "was cancelled. Nothing was changed." in page.said[0]
            assert page.column("status") == ["scheduled"]

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("page", [MESSAGES, ATTEMPTS, "/admin/django_pgqueue/reporthour/"])
    def test_a_list_that_cannot_be_asked_even_for_no_rows_is_no_error_page(self, root: Visitor, page: str) -> None:
        with psycopg.connect(conninfo()) as other:
            other.execute("lock table pgqueue_message, pgqueue_attempt, pgqueue_rollup, pgqueue_report_hour")
            answer = root.client.get(page)
        assert (answer.status_code, answer["Content-Type"]) == (503, "text/plain; charset=utf-8")
        assert answer.content.decode().endswith("seconds and was cancelled.\n")

    def test_the_surrounding_transaction_keeps_its_settings(self, root: Visitor) -> None:
        before = sql("select current_setting('statement_timeout'), current_setting('enable_seqscan')")
        root.open(MESSAGES)
        assert sql("select current_setting('statement_timeout'), current_setting('enable_seqscan')") == before
