from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.attempt.admin import HistoryChangeList
from django_pgqueue.models import Attempt, Message
from tests.support.address import conninfo
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, fail, retry, send, sql, visitor_of

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("clock")


class LogOnAReplica:
    """Router of a project that reads from another database, which is not there."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "replica" if model is LogEntry else None


SECOND = dt.timedelta(seconds=1)


def ended(seconds: float = 0, *, clock: Clock, **more: object) -> int:
    """A message that has succeeded after so many seconds."""
    pk = send(**more)  # type: ignore[arg-type]
    [held] = claim(str(more.get("queue", "default")), tasks=more.get("task", "") is not None)
    complete(held, started_at=clock.at, finished_at=clock.at + seconds * SECOND)
    return pk


def attempt_of(message_id: int) -> int:
    return Attempt.objects.get(message_id=message_id).pk


def test_a_row_shows_the_main_columns(root: Visitor, clock: Clock) -> None:
    pk = send(channel="acme")
    clock.advance(90 * SECOND)
    fail(
        claim()[0],
        ValueError("The voucher\nhas expired"),
        started_at=clock.at,
        finished_at=clock.at + 2.5 * SECOND,
    )
    [row] = root.open_with_all_columns(ATTEMPTS).rows
    started = clock.at.strftime("%Y-%m-%d %H:%M:%S")
    finished = (clock.at + 2.5 * SECOND).strftime("%Y-%m-%d %H:%M:%S")
    assert {name: text for name, text in row.items() if name and not name.startswith("select")} == {
        "id": str(attempt_of(pk)),
        "message": str(pk),
        "status": "failed",
        "task": "send_receipt shop.tasks",
        "queue": "default",
        "attempt": "1 of 5",
        "finished at": finished,
        "took": "2.5 s",
        "error": "ValueError: The voucher has expired",
        "waited": "2 min",
        "started at": started,
        "worker": "worker-1",
        "channel": "acme",
    }


def test_waiting_time_begins_when_the_message_exists_and_is_due(root: Visitor, clock: Clock) -> None:
    for dequeue_at in (-(2**63), 0):
        send(dequeue_at=dequeue_at)
    send(delay_ms=4_000)
    clock.advance(5 * SECOND)
    for held in claim(limit=3):
        complete(held, started_at=clock.at, finished_at=clock.at)
    assert root.open_with_all_columns(ATTEMPTS).column("waited") == ["1.0 s", "5.0 s", "5.0 s"]


def test_an_attempt_that_never_started_has_no_run_times(root: Visitor, clock: Clock) -> None:
    functions.message_cancel(connection, [send()])
    [row] = root.open_with_all_columns(ATTEMPTS).rows
    assert (row["status"], row["started at"], row["took"], row["waited"], row["error"]) == ("cancelled", *"----")


def test_the_message_is_one_click_away_while_it_is_in_the_queue(root: Visitor, clock: Clock) -> None:
    pk = send()
    retry(claim()[0], dequeue_at=0)
    link = root.open(ATTEMPTS).cells[0]["message"].one("a").attributes["href"]
    assert root.open(link).fields["status"].text == "ready"
    complete(claim()[0])
    root.open_with_all_columns(ATTEMPTS)
    history = root.open(link)
    assert history.response.request["PATH_INFO"] == ATTEMPTS
    assert history.column("attempt") == ["2 of 5", "1 of 5"]
    assert history.column("message") == [str(pk)] * 2


def test_the_page_of_an_attempt_shows_its_end(root: Visitor, clock: Clock) -> None:
    pk = send('{"args": ["<i>"], "kwargs": {}}', headers='{"trace": 1}')
    with pytest.raises(KeyError) as raised:
        sys.modules["<b>missing</b>"]
    fail(claim()[0], raised.value)
    shown = root.open(f"{ATTEMPTS}{attempt_of(pk)}/change/").fields
    assert shown["status"].text == "failed"
    assert shown["error"].one("pre").raw_text == "builtins.KeyError: '<b>missing</b>'"
    traceback = shown["traceback"].one("pre").raw_text
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert 'sys.modules["<b>missing</b>"]' in traceback
    assert shown["content"].text == '{ "args": [ "<i>" ], "kwargs": {} }'
    assert shown["headers"].text == '{ "trace": 1 }'
    assert shown["result"].text == "-"


def test_a_result_is_shown_as_json(root: Visitor, clock: Clock) -> None:
    pk = send()
    complete(claim()[0], '{"sent": [1, null]}')
    shown = root.open(f"{ATTEMPTS}{attempt_of(pk)}/change/").fields
    assert shown["result"].text == '{ "sent": [ 1, null ] }'
    assert shown["error"].text == "-"


class TestFilters:
    def listed(self, root: Visitor, sent: dict[str, int], **limits: str | None) -> set[str]:
        page = root.open(ATTEMPTS, **{name: value for name, value in limits.items() if value is not None})
        return {name for name, pk in sent.items() if str(pk) in page.column("message")}

    def test_by_the_status(self, root: Visitor, clock: Clock) -> None:
        ended(clock=clock)
        failed = send()
        fail(claim()[0])
        page = root.open(ATTEMPTS, status__exact="failed")
        assert page.column("message") == [str(failed)]
        assert page.chosen("status") == ["Failed"]

    def test_by_whether_the_attempt_was_final(self, root: Visitor) -> None:
        send()
        retry(claim()[0], dequeue_at=0)
        done = claim()[0]
        complete(done)
        assert root.open(ATTEMPTS, final__exact="0").column("status") == ["retried"]
        assert root.open(ATTEMPTS, final__exact="1").column("status") == ["succeeded"]

    def test_by_the_days_on_which_the_attempt_finished(self, root: Visitor, clock: Clock) -> None:
        clock.move_to(dt.datetime(2026, 11, 1, 23, 59, tzinfo=dt.UTC))
        before, inside = ended(clock=clock), ended(90, clock=clock)
        day = {"finished_at__range__gte_0": "2026-11-02", "finished_at__range__lte_0": "2026-11-02"}
        page = root.open(ATTEMPTS, **day)
        assert page.column("message") == [str(inside)]
        assert str(before) in root.open(ATTEMPTS, finished_at__range__lte_0="2026-11-01").column("message")

    def test_a_day_ends_with_the_second_of_its_hours_that_a_clock_shows_twice(
        self, root: Visitor, clock: Clock, settings: Any
    ) -> None:
        settings.TIME_ZONE = "America/Sao_Paulo"
        clock.move_to(dt.datetime(2018, 2, 18, 2, 30, tzinfo=dt.UTC))  # at midnight it had been 23 o'clock again
        inside = ended(clock=clock)
        for until in ({}, {"finished_at__range__lte_1": "23:40:00"}):
            page = root.open(ATTEMPTS, finished_at__range__lte_0="2018-02-17", **until)
            assert page.column("message") == [str(inside)]

    @pytest.mark.parametrize("side", ["gte", "lte"])
    def test_a_time_that_a_clock_skips_leaves_nothing_out(
        self, root: Visitor, clock: Clock, settings: Any, side: str
    ) -> None:
        settings.TIME_ZONE = "Europe/Berlin"
        clock.move_to(dt.datetime(2026, 3, 29, 1, 15, tzinfo=dt.UTC))  # a quarter of an hour after the change
        inside = ended(clock=clock)
        given = {f"finished_at__range__{side}_0": "2026-03-29", f"finished_at__range__{side}_1": "02:30:00"}
        assert root.open(ATTEMPTS, **given).column("message") == [str(inside)]

    def test_by_the_duration_of_the_attempt(self, root: Visitor, clock: Clock) -> None:
        seconds = {"fast": 0.05, "half": 0.5, "slow": 5, "hour": 3600}
        sent = {name: ended(took, clock=clock) for name, took in seconds.items()}
        functions.message_cancel(connection, [send()])
        for least, most, found in (
            ("", "0.1", {"fast"}),
            (None, "1", {"fast", "half"}),
            ("0.5", None, {"half", "slow", "hour"}),
            ("1", "10", {"slow"}),
            ("60", "", {"hour"}),
            ("", "", set(sent)),
            ("3600", "3600", {"hour"}),
        ):
            assert self.listed(root, sent, duration__range__gte=least, duration__range__lte=most) == found, least

    def test_by_the_waiting_time_of_the_message(self, root: Visitor, clock: Clock) -> None:
        """From when it was due, and not before it was there."""
        sent = {}
        for name, delay_ms, seconds in (
            ("at once", 0, 0.5),
            ("soon", 0, 5),
            ("late", 0, 90),
            ("late for its time", 60_000, 150),
            ("in time", 60_000, 60),
        ):
            sent[name] = send(delay_ms=delay_ms)
            clock.advance(seconds * SECOND)
            complete(claim()[0], started_at=clock.at, finished_at=clock.at)
        sent["jumped the queue"] = send(dequeue_at=-(2**63))
        complete(claim()[0], started_at=clock.at, finished_at=clock.at)
        functions.message_cancel(connection, [send()])
        for least, most, found in (
            (None, "1", {"at once"}),
            ("1", "10", {"soon"}),
            ("60", None, {"late", "late for its time"}),
            ("", "", {"at once", "soon", "late", "late for its time"}),
        ):
            listed = self.listed(root, sent, wait__range__gte=least, wait__range__lte=most)
            assert listed - {"in time", "jumped the queue"} == found, least

    def test_the_usual_durations_are_a_click_away(self, root: Visitor, clock: Clock) -> None:
        ended(5, clock=clock)
        ended(0.01, clock=clock)
        offered = {link.text: link.attributes["href"] for link in root.open(ATTEMPTS).filter("duration").all("a")}
        assert list(offered) == ["under 100 ms", "under 1 s", "1 s to 10 s", "over 10 s", "over 1 min"]
        page = root.open(ATTEMPTS + offered["1 s to 10 s"])
        assert page.column("took") == ["5.0 s"]
        assert page.chosen("duration") == ["1 s to 10 s"]

    @pytest.mark.parametrize("wrong", ["soon", "-1", "nan", "inf", "1e300"])
    def test_an_invalid_duration_is_reported(self, root: Visitor, clock: Clock, wrong: str) -> None:
        ended(clock=clock)
        page = root.open(ATTEMPTS, duration__range__gte=wrong)
        assert page.rows == []
        assert page.said[0].startswith("Filter duration: ")

    @pytest.mark.parametrize("asked", ["builtins.ValueError", "valueerror", "voucher", "TEA-2019"])
    def test_by_the_error(self, root: Visitor, clock: Clock, asked: str) -> None:
        ended(clock=clock)
        send()
        fail(claim()[0], ValueError("The voucher TEA-2019 has expired"))
        page = root.open(ATTEMPTS, error_class=asked)
        assert page.choices("error")[:2] == ["All", "builtins.ValueError"]
        assert page.column("status") == ["failed"]

    def test_by_queue_task_and_channel(self, root: Visitor, clock: Clock) -> None:
        mail = ended(clock=clock, queue="mail", task="tasks.mail", channel="acme")
        raw = ended(clock=clock, queue="raw", task=None)
        for chosen, pk in {
            "queue=mail": mail,
            "queue=raw": raw,
            "task=tasks.mail": mail,
            "task=(raw)": raw,
            "channel=acme": mail,
        }.items():
            assert root.open(f"{ATTEMPTS}?{chosen}").column("message") == [str(pk)], chosen

    def test_by_an_id_of_a_message_or_of_an_attempt(self, root: Visitor, clock: Clock) -> None:
        sql("alter sequence pgqueue_attempt_id_seq restart with 1000000")
        first, second = ended(clock=clock), ended(clock=clock)
        assert root.open(ATTEMPTS, q=str(first)).column("message") == [str(first)]
        assert root.open(ATTEMPTS, q=str(attempt_of(second))).column("message") == [str(second)]
        assert root.open(ATTEMPTS, q="RECEIPT").column("message") == [str(second), str(first)]


class TestWindow:
    """Where no index leads, the newest are looked through, and no more than those."""

    @pytest.fixture
    def many(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        monkeypatch.setattr(HistoryChangeList, "WINDOW", 3)
        clock.move_to(dt.datetime(2026, 11, 1, 10, 30, tzinfo=dt.UTC))
        sent = []
        for number in range(5):
            sent.append(ended(clock=clock, queue=f"queue-{number % 2}"))
            clock.advance(dt.timedelta(hours=1))
        return sent

    def test_a_filter_searches_the_newest_attempts_and_shows_how_far(self, root: Visitor, many: list[int]) -> None:
        page = root.open(ATTEMPTS, queue="queue-0")
        assert page.column("message") == [str(many[4]), str(many[2])]
        assert page.notes == [
            (
                "The list searched the newest 3 attempts, back to 2026-11-01 11:30. "
                "Choose a range of “finished at” to search others."
            )
        ]

    @pytest.mark.usefixtures("many")
    def test_a_search_for_a_task_searches_the_newest_attempts(self, root: Visitor) -> None:
        page = root.open(ATTEMPTS, q="receipt")
        assert len(page.rows) == 3
        assert len(page.notes) == 1

    @pytest.mark.parametrize(
        "query",
        ["", "o=1", "q={first}", "message_id={first}", "queue=queue-0&finished_at__range__gte_0=2026-01-01", "queue="],
    )
    def test_a_filter_with_an_index_finds_all_attempts(self, root: Visitor, many: list[int], query: str) -> None:
        page = root.open(f"{ATTEMPTS}?{query.format(first=many[0])}")
        assert page.notes == []
        assert str(many[0]) in page.column("message") or query == "queue="

    def test_a_short_history_is_searched_completely_without_a_note(self, root: Visitor, clock: Clock) -> None:
        assert root.open(ATTEMPTS, queue="default").rows == []
        ended(clock=clock)
        assert root.open(ATTEMPTS, queue="default").notes == []


class TestEnqueueAgain:
    def test_ended_messages_are_enqueued_again_and_the_new_ids_shown(self, root: Visitor) -> None:
        failed, done = send('{"n": 1}', queue="mail", priority=7), send('{"n": 2}')
        fail(claim("mail")[0])
        complete(claim()[0])
        page = root.act(ATTEMPTS, "enqueue_again", [attempt_of(failed), attempt_of(done)])
        made = list(Message.objects.order_by("id"))
        assert [(message.content, message.queue, message.priority) for message in made] == [
            ({"n": 1}, "mail", 7),
            ({"n": 2}, "default", 0),
        ]
        assert page.said == [f"2 messages enqueued again: {made[0].pk}, {made[1].pk}"]
        links = [link.attributes["href"] for link in page.root.one("ul", class_="messagelist").all("a")]
        assert links == [f"{MESSAGES}{message.pk}/change/" for message in made]

    def test_an_attempt_that_is_not_final_is_skipped(self, root: Visitor) -> None:
        pk = send()
        retry(claim()[0], dequeue_at=0)
        attempt = attempt_of(pk)
        page = root.act(ATTEMPTS, "enqueue_again", [attempt])
        assert page.said == [
            (
                "1 not enqueued again, because it is not the last attempt of its message: "
                f"the queue still has the message, or it has a later attempt ({attempt})."
            )
        ]
        assert Message.objects.count() == 1

    def test_a_form_that_is_sent_twice_enqueues_once(self, root: Visitor, clock: Clock) -> None:
        first, second = attempt_of(ended(clock=clock)), attempt_of(ended(clock=clock))
        for url in (ATTEMPTS, f"{ATTEMPTS}{first}/change/"):
            sent = {"seen": root.open(url).root.all("input", name="seen")[-1].attributes["value"]}
            before = Message.objects.count()
            root.act(ATTEMPTS, "enqueue_again", [first], **sent)
            [again, other] = root.act(ATTEMPTS, "enqueue_again", [first, second], **sent).said
            assert again.startswith("1 message enqueued again")
            assert f"since the page was shown, you or somebody else has acted on {first}" in other
            assert Message.objects.count() == before + 2

    @pytest.mark.django_db(transaction=True)
    def test_two_requests_of_a_double_click_at_a_time_enqueue_once(self, root: Visitor, clock: Clock) -> None:
        said = root.double_click(ATTEMPTS, "enqueue_again", [attempt_of(ended(clock=clock))])
        assert any("since the page was shown, you or somebody else has acted on" in text for text in said), said
        assert Message.objects.count() == 1

    def test_two_people_who_see_the_same_failed_job_enqueue_it_once(self, root: Visitor, clock: Clock) -> None:
        attempt = attempt_of(ended(clock=clock))
        ada = visitor_of(User.objects.create_superuser("ada"))
        sent = {"seen": ada.open(ATTEMPTS).root.one("input", name="seen").attributes["value"]}
        root.act(ATTEMPTS, "enqueue_again", [attempt], **sent)
        [said] = ada.act(ATTEMPTS, "enqueue_again", [attempt], **sent).said
        assert f"you or somebody else has acted on {attempt}" in said
        assert Message.objects.count() == 1
        now = {"seen": ada.open(ATTEMPTS).root.one("input", name="seen").attributes["value"]}
        assert ada.act(ATTEMPTS, "enqueue_again", [attempt], **now).said[0].startswith("1 message enqueued again")

    @pytest.mark.django_db(transaction=True)
    def test_a_transaction_that_has_written_to_the_log_holds_up_no_action(self, root: Visitor, clock: Clock) -> None:
        attempt = attempt_of(ended(clock=clock))
        sent = {"seen": root.open(ATTEMPTS).root.one("input", name="seen").attributes["value"]}
        with psycopg.connect(conninfo()) as other:
            for table in ("auth_user", "django_content_type"):
                other.execute(f"select from {table} for key share")  # as each foreign key does
            [said] = root.act(ATTEMPTS, "enqueue_again", [attempt], **sent).said
        assert said.startswith("1 message enqueued again")

    def test_a_form_asks_no_replica_what_has_been_done(self, root: Visitor, settings: Settings) -> None:
        """It may not know yet: what the user did before the page was shown would count as done since then."""
        settings.DATABASE_ROUTERS = [LogOnAReplica()]
        assert root.open(ATTEMPTS).root.one("input", name="seen").attributes["value"] == "0"

    def test_all_rows_of_a_filter_can_be_selected(self, root: Visitor, clock: Clock) -> None:
        for _ in range(55):
            ended(clock=clock, queue="mail")
        other = ended(clock=clock)
        [first, *_] = root.open(f"{ATTEMPTS}?queue=mail").ids
        page = root.act(f"{ATTEMPTS}?queue=mail", "enqueue_again", [first], select_across=1)
        assert page.said[0].startswith("55 messages enqueued again: ")
        assert page.said[0].endswith(", …")
        assert set(Message.objects.values_list("queue", flat=True)) == {"mail"}
        assert other

    def test_a_row_that_the_queue_refuses_is_reported_and_nothing_is_enqueued(
        self, root: Visitor, clock: Clock
    ) -> None:
        good, bad = ended(clock=clock), ended(clock=clock)
        sql("update pgqueue_attempt set priority = 9999 where message_id = %s", bad)
        page = root.act(ATTEMPTS, "enqueue_again", [attempt_of(good), attempt_of(bad)])
        assert page.said[0].startswith("Nothing was enqueued again: ")
        assert "priority" in page.said[0]
        assert Message.objects.count() == 0

    def test_an_attempt_without_content_is_skipped(self, root: Visitor, clock: Clock) -> None:
        pk = ended(clock=clock)
        sql("update pgqueue_attempt set content = null where message_id = %s", pk)
        assert root.act(ATTEMPTS, "enqueue_again", [attempt_of(pk)]).said[0].startswith("1 not enqueued again")
