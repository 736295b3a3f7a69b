"""The overview, as a person reads it, and the numbers that it asks for again."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.models import QueueState
from django_pgqueue.monitoring.overview import census, counts, limits, long_transactions, throughput
from django_pgqueue.worker.upkeep import bloat
from tests.support.address import conninfo
from tests.support.admin_page import Page
from tests.support.fixtures.admin import NOON, TASK, claim, complete, fail, retry, send, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django import DjangoAssertNumQueries
    from pytest_django.fixtures import Settings

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Visitor

OVERVIEW = "/admin/django_pgqueue/overview/"
HOUR_MS = 3_600_000

pytestmark = pytest.mark.usefixtures("noon")


def queues(page: Page) -> dict[str, dict[str, str]]:
    """The rows of the table, by the names of the queues and of the columns."""
    table = page.root.one("table", class_="pgqueue-overview-table")
    return {
        row.one("th").text: {cell.attributes.get("data-label", ""): cell.text for cell in row.all("td")}
        for row in table.one("tbody").all("tr")
        if row.all("th")
    }


def numbers(root: Visitor, queue: str = "default") -> dict[str, str]:
    row = next(row for name, row in queues(root.open(OVERVIEW)).items() if name.split()[0] == queue)
    return {name: row[name] for name in ("Ready", "Oldest", "Scheduled", "Running", "Failed, 24 h")}


def test_the_overview_of_an_empty_queue_has_a_note(root: Visitor) -> None:
    page = root.open(OVERVIEW)
    assert queues(page) == {}
    assert "No message waits or runs, and none has ended in the last 4 hours." in page.root.text


def test_the_number_of_failed_messages_leads_to_as_many(root: Visitor, clock: Clock, settings: Settings) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"
    for hours in (2, 22, 1):
        send()
        fail(claim()[0])
        clock.advance(dt.timedelta(hours=hours))
    assert numbers(root)["Failed, 24 h"] == "2"
    [link] = [one for one in root.open(OVERVIEW).root.all("a") if "status__exact=failed" in one.attributes["href"]]
    assert len(root.open(link.attributes["href"]).ids) == 2


def test_the_overview_counts_waiting_running_and_failed_messages(root: Visitor, clock: Clock) -> None:
    sign_in()
    for _ in range(2):
        send()
        fail(claim()[0])
    send()
    retry(claim()[0], delay_ms=HOUR_MS)
    send(after=functions.After((send(queue="other"),)))
    send(priority=3)
    claim()
    send(task=None, priority=-100)
    clock.advance(dt.timedelta(minutes=5))
    send(priority=100)
    assert numbers(root) == {
        "Ready": "2", "Oldest": "5 min", "Scheduled": "1 1 waits for other messages or events",
        "Running": "0 1 expired", "Failed, 24 h": "2",
    }  # fmt: skip
    assert numbers(root, "other")["Ready"] == "1"


def test_a_number_leads_to_the_list_that_it_counts(root: Visitor) -> None:
    sign_in()
    pk = send(queue="a&b")
    send(queue="a&b", delay_ms=HOUR_MS)
    table = root.open(OVERVIEW).root.one("table", class_="pgqueue-overview-table")
    ready, scheduled = (link.attributes["href"] for link in table.all("a"))
    assert root.open(ready).ids == [pk]
    assert len(root.open(scheduled).ids) == 1


def test_failures_older_than_a_day_are_not_counted(root: Visitor, clock: Clock) -> None:
    for _ in range(2):
        send()
        fail(claim()[0])
        clock.advance(dt.timedelta(hours=23))
    send()
    assert numbers(root)["Failed, 24 h"] == "1"


def test_the_age_of_a_message_counts_from_its_enqueue_at_the_earliest(root: Visitor, clock: Clock) -> None:
    send(dequeue_at=-(2**63))
    clock.advance(dt.timedelta(seconds=30))
    assert numbers(root)["Oldest"] == "30 s"


@pytest.fixture
def beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is too large for a count, and the sample has missed all messages."""
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 0)


@pytest.mark.usefixtures("beyond")
def test_numbers_that_are_not_counted_are_marked_with_a_note(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "~ means: estimated, from a sample."
    for _ in range(4):
        send()
        claim()
    for _ in range(5):
        send()
        send(delay_ms=HOUR_MS)
    send(queue="small", task=None)
    assert note not in root.open(OVERVIEW).root.text
    monkeypatch.setattr(counts, "MAX_PROBED", 3)
    page = root.open(OVERVIEW)
    assert note in page.root.text
    row = queues(page)["default no worker"]
    assert (row["Ready"], row["Scheduled"], row["Running"], row["Failed, 24 h"]) == ("~4", "~4", "~4", "0")
    assert queues(page)["small"]["Ready"] == "1"


@pytest.mark.usefixtures("beyond")
def test_many_queues_share_the_limit_of_probes_and_not_all_are_shown(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "QUEUES", 3)
    monkeypatch.setattr(counts, "ALTOGETHER", 18)
    for number in range(5):
        for _ in range(4):
            send(queue=f"q{number}", task=None)
    page = root.open(OVERVIEW)
    assert {name: row["Ready"] for name, row in queues(page).items()} == {"q0": "~3", "q1": "~3", "q2": "~3"}
    assert page.notes == ["There are more queues than these."]


def test_a_queue_without_a_worker_and_a_paused_queue_are_marked(root: Visitor) -> None:
    sign_in(queues=["mail"])
    send(queue="mail")
    send(queue="slow")
    send(queue="raw", task=None)
    send(queue="later", delay_ms=HOUR_MS)
    control.pause("mail", by="Ada")
    assert list(queues(root.open(OVERVIEW))) == [
        "later", "mail paused since 2026-01-09 12:00:00 by Ada", "raw", "slow no worker",
    ]  # fmt: skip


def test_workers_are_busy_idle_or_silent(root: Visitor, clock: Clock) -> None:
    sql("delete from pgqueue_worker")  # who was killed in another test has not signed off
    sign_in("gone <b>")
    clock.advance(dt.timedelta(minutes=10))
    sign_in(slots=3, version="2.4")
    sign_in("idle", asleep_ms=60_000, slots=4)
    send()
    claim()
    page = root.open(OVERVIEW)
    assert "1 busy, 1 idle, 1 of 7 slots in use; 1 silent; version 2.4 (1)" in page.root.text
    [warning] = page.root.one("ul", class_="pgqueue-warnings").all("li")
    assert (
        warning.text
        == "Worker gone <b> has not renewed its row for 10 min: it died, or cannot reach the database. Worker"
    )
    table = page.root.one("table", class_="pgqueue-workers-table")
    assert [[cell.text for cell in row.all("td")] for row in table.one("tbody").all("tr")] == [
        ["all queues", "1 of 3", f"{TASK} 0 ms", "2.4"], ["all queues", "0 of 4", "idle", "-"],
    ]  # fmt: skip


def test_the_long_name_of_a_running_task_ends_in_dots(root: Visitor) -> None:
    sql("delete from pgqueue_worker")
    sign_in(slots=1)
    send(task=f"shop.tasks.{'a' * 40}")
    claim()
    table = root.open(OVERVIEW).root.one("table", class_="pgqueue-workers-table")
    [_, _, runs, _] = table.one("tbody").all("td")
    assert runs.text.startswith(f"shop.tasks.{'a' * 28}… ")


def test_what_is_wrong_stands_first_and_leads_on(root: Visitor, visitor: Callable[..., Visitor]) -> None:
    sign_in(queues=["reports"])
    ready = send(queue="mail")
    send(queue="reports")
    control.pause("reports", by="Ada")
    [mail, reports] = root.open(OVERVIEW).root.one("ul", class_="pgqueue-warnings").all("li")
    assert mail.text == "No worker serves the queue mail: 1 message is ready. Messages"
    assert root.open(mail.one("a").attributes["href"]).ids == [ready]
    assert reports.text == "The queue reports has been paused for 0 ms by Ada: 1 message is ready. Queues Resume"
    assert reports.one("input", name="queue").attributes["value"] == "reports"
    seen = visitor("view_overview").open(OVERVIEW).root.one("ul", class_="pgqueue-warnings")
    assert "No worker serves the queue mail" in seen.text
    assert seen.all("a") == seen.all("button") == []


def test_a_listener_for_raw_messages_is_no_worker(root: Visitor, clock: Clock) -> None:
    sign_in("died listening", tasks=False)
    clock.advance(dt.timedelta(minutes=5))
    sign_in("listener", queues=["raw"], tasks=False, slots=9)
    text = root.open(OVERVIEW).root.text
    assert "No worker runs: start manage.py qworker; 1 listening for raw messages" in text
    assert "has not renewed its row" not in text


def test_the_next_schedules_are_listed_for_permitted_users(
    root: Visitor, visitor: Callable[..., Visitor], clock: Clock
) -> None:
    sql(
        "insert into pgqueue_schedule (name, next_at, task, interval_ms, paused_at) select 'n' || i, "
        "(extract(epoch from %s::timestamptz) * 1000)::bigint + i * 3600000, 't', 1000, case when i = 1 then now() end "
        "from generate_series(1, 8) i",
        clock.at,
    )
    text = root.open(OVERVIEW).root.text
    assert "n2 2026-01-09 14:00:00 in 2 h" in text
    assert "n1 " not in text
    assert "n7 " not in text
    assert "Next schedules" not in visitor("view_overview").open(OVERVIEW).root.text


@pytest.mark.django_db(transaction=True)  # within a transaction PostgreSQL shows the sessions as they were before
def test_a_pinned_snapshot_is_a_warning(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_transactions, "OLD", dt.timedelta(seconds=-1))
    assert "a long report" not in root.open(OVERVIEW).root.text
    with psycopg.connect(conninfo(), application_name="a long report") as other:
        other.execute("begin isolation level repeatable read")
        [[pid]] = other.execute("select pg_backend_pid() from pg_class limit 1").fetchall()
        warnings = root.open(OVERVIEW).root.one("ul", class_="pgqueue-warnings").all("li")
        # Another session may be in a transaction for a moment, too.
        assert len([item for item in warnings if f"session {pid} (a long report, user " in item.text]) == 1


@pytest.mark.django_db(transaction=True)
def test_a_table_that_is_too_large_is_a_warning(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloat, "LARGE_BYTES", -1)
    monkeypatch.setattr(bloat, "MAX_INDEX_BYTES_A_ROW", -1)
    warnings = root.open(OVERVIEW).root.one("ul", class_="pgqueue-warnings").all("li")
    [text] = [warning.text for warning in warnings if " takes " in warning.text]
    assert re.search(r"^pgqueue_\w+ takes .*, and \d+ more tables and indexes are too large.", text)


def test_the_page_is_some_dozen_statements_however_many_queues_there_are(
    root: Visitor, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    sign_in()
    for number in range(12):
        send(queue=f"q{number}", channel=f"tenant-{number}")
        fail(claim(f"q{number}")[0])
        send(queue=f"q{number}")
    with django_assert_max_num_queries(50):
        assert len(queues(root.open(OVERVIEW))) == 12


class TestChannels:
    def test_messages_of_channels_count_in_their_queues(self, root: Visitor, clock: Clock) -> None:
        """Whether a dequeue has seen their lanes or not."""
        sign_in()
        functions.channel_set(connection, "acme", max_concurrency=1)
        for channel in ("acme", "acme", "acme", "zeta"):
            send(channel=channel)
        claim()
        clock.advance(dt.timedelta(seconds=30))
        send(channel="new", queue="other", delay_ms=HOUR_MS)
        send(channel="acme", task=None)
        send()
        assert numbers(root) | {"Failed, 24 h": ""} == {
            "Ready": "5", "Oldest": "30 s", "Scheduled": "0", "Running": "1", "Failed, 24 h": "",
        }  # fmt: skip
        assert numbers(root, "other")["Scheduled"] == "1"

    @pytest.mark.usefixtures("beyond")
    def test_large_numbers_of_channels_are_not_claimed_to_be_counted(
        self, root: Visitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in()
        monkeypatch.setattr(counts, "ALTOGETHER", 70)
        for _ in range(11):
            send(channel="acme")
            send(channel="zeta", delay_ms=HOUR_MS)
        assert numbers(root)["Ready"] == "11"
        monkeypatch.setattr(counts, "ALTOGETHER", 40)
        assert numbers(root)["Ready"] == "~11"
        assert numbers(root)["Scheduled"] == "~11"


class TestPulse:
    def test_few_rows_are_counted_exactly(self, root: Visitor, clock: Clock) -> None:
        clock.move_to(NOON - dt.timedelta(hours=1))
        for seconds in (0, 2, 4):
            send()
            clock.advance(dt.timedelta(seconds=seconds))
            complete(claim()[0])
        clock.move_to(NOON)
        row = queues(root.open(OVERVIEW))["default"]
        assert row["Ended"].startswith(
            "Attempts that ended, default3 in the last 4 hours; at most 3 in 5 minutes.0 a minute"
        )
        assert row["Waited"].startswith(
            "Waiting time, defaultMedians of 5 minutes over the last 4 hours: 2.0 s at last, 2.0 s at"
        )

    def test_attempts_before_the_window_are_not_counted(self) -> None:
        filled(100, NOON - dt.timedelta(hours=9), NOON - dt.timedelta(hours=5))
        filled(10, NOON - dt.timedelta(hours=3), NOON)
        found = throughput.taken(NOON, using="default")
        assert found.is_exact
        assert sum(found.queues["q"].ended) == 10

    def test_many_rows_are_estimated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(throughput, "SAMPLE", 300)
        filled(20_000, NOON - dt.timedelta(hours=8), NOON)
        found = throughput.taken(NOON, using="default")
        assert not found.is_exact
        ended = found.queues["q"].ended
        assert 9_000 <= sum(ended) <= 11_000
        assert all(0 < each < 500 for each in ended)
        assert {round(wait) for wait in found.queues["q"].waited_ms if wait is not None} == {1_500}

    def test_a_gap_in_the_ids_is_not_counted_as_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(throughput, "SAMPLE", 100)
        filled(1_000, NOON - dt.timedelta(hours=2), NOON - dt.timedelta(hours=1))
        sql("select setval('pgqueue_attempt_id_seq', nextval('pgqueue_attempt_id_seq') + 9000)")
        filled(1_000, NOON - dt.timedelta(hours=1), NOON)
        assert sum(throughput.taken(NOON, using="default").queues["q"].ended) < 3_000

    def test_yesterday_is_a_part_of_a_night(self) -> None:
        night = NOON.replace(hour=1)
        filled(10, night - dt.timedelta(hours=3), night)
        assert sum(throughput.taken(night, using="default").queues["q"].ended) == 10

    def test_times_that_no_calendar_has_break_nothing(self, root: Visitor) -> None:
        for time in ("9999-12-29", "0001-01-03"):
            sql(
                "insert into pgqueue_attempt (message_id, dequeue_at, created_at, started_at, finished_at, attempt, "
                "priority, final, status, queue) values (1, %s, %s, %s, %s, 1, 0, true, 'failed', 'odd')",
                -(2**63), time, time, time,
            )  # fmt: skip
            sql("insert into pgqueue_message (dequeue_at, content, created_at) values (0, '{}', %s)", time)
            sql("insert into pgqueue_queue (name, paused_at) values (%s, %s)", f"paused {time}", time)
        assert root.open(OVERVIEW).response.status_code == 200


def filled(rows: int, since: dt.datetime, until: dt.datetime) -> None:
    """So many attempts at even distances, which had waited a second and a half."""
    sql(
        "insert into pgqueue_attempt (message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority, "
        "final, status, queue) select i, 0, at - interval '1.5 s', at, at, 1, 0, true, 'succeeded', 'q' "
        "from (select i, %s::timestamptz + (%s::timestamptz - %s::timestamptz) * i / %s as at "
        "from generate_series(1, %s) i) t",
        since, until, since, rows + 1, rows,
    )  # fmt: skip


class TestLive:
    def test_the_live_view_returns_the_same_numbers(self, root: Visitor) -> None:
        send(queue="mail <b>")
        answer = root.client.get(f"{OVERVIEW}live/")
        assert answer["Content-Type"] == "application/json"
        assert "no-store" in answer["Cache-Control"]
        told = answer.json()
        assert "mail &lt;b&gt;" in told["html"]
        assert told["took_ms"] >= 0

    def test_each_page_accepts_only_its_method(self, root: Visitor) -> None:
        for url in (f"{OVERVIEW}live/", OVERVIEW):
            assert root.client.post(url).status_code == 405
        assert root.client.get(f"{OVERVIEW}act/").status_code == 405

    def test_the_overview_permission_alone_shows_no_links_to_lists(self, visitor: Callable[..., Visitor]) -> None:
        send()
        page = visitor("view_overview").open(OVERVIEW)
        table = page.root.one("table", class_="pgqueue-overview-table")
        assert table.all("a") == []
        assert table.all("button") == []

    @pytest.mark.django_db(transaction=True)
    def test_a_query_that_takes_too_long_is_stopped_and_reported(
        self, root: Visitor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "50ms")
        with psycopg.connect(conninfo()) as other:
            other.execute("lock table pgqueue_message in access exclusive mode")
            answer = root.client.get(f"{OVERVIEW}live/")
            page = root.open(OVERVIEW)
        assert answer.status_code == 503
        assert answer.json() == {"problem": "The query took longer than 5 seconds and was cancelled."}
        assert page.notes == [answer.json()["problem"]]


class TestPause:
    def press(self, root: Visitor, words: str) -> Page:
        page = root.open(OVERVIEW)
        form = next(form for form in page.root.all("form") for b in form.all("button") if b.text.startswith(words))
        [button] = form.all("button")
        data = {field.attributes["name"]: field.attributes["value"] for field in form.all("input")}
        data["action"] = button.attributes["value"]
        return Page(root.client.post(form.attributes["action"], data, follow=True))

    def test_a_queue_is_paused_and_resumed_and_it_is_logged(self, root: Visitor) -> None:
        send(queue="mail")
        assert self.press(root, "Pause").said == ["Paused: mail."]
        assert QueueState.objects.get().paused_by == "root"
        assert self.press(root, "Resume").said == ["Resumed: mail."]
        assert QueueState.objects.get().paused_at is None
        entries = LogEntry.objects.order_by("pk").values_list("object_id", "change_message")
        assert list(entries) == [("mail", "Paused."), ("mail", "Resumed.")]

    def test_an_invalid_request_does_nothing(self, root: Visitor) -> None:
        for data in ({"queue": "mail", "action": "explode"}, {"queue": "", "action": "pause"}, {}):
            assert root.client.post(f"{OVERVIEW}act/", data).status_code == 302
        assert not QueueState.objects.exists()


def test_the_charts_have_text_alternatives(root: Visitor) -> None:
    send()
    complete(claim()[0])
    page = root.open(OVERVIEW)
    for picture in page.root.all("svg", class_="pgqueue-spark"):
        names = picture.attributes["aria-labelledby"].split()
        assert [element.attributes["id"] for element in (picture.one("title"), picture.one("desc"))] == names
        assert picture.attributes["role"] == "img"
        assert picture.one("desc").text
    assert len(page.root.all("svg", class_="pgqueue-spark")) == 2
