from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue.admin.parts.filters import CHOICES
from django_pgqueue.models import Message
from django_pgqueue.values.times import to_epoch_ms
from tests.admin.cost import measured
from tests.support.admin_page import parameters
from tests.support.fixtures.admin import MESSAGES, claim, retry, send, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Page, Visitor

HOUR_MS = 3_600_000
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def four(clock: Clock) -> dict[str, int]:
    """A message of each status."""
    expired = send(queue="a", priority=1)
    claim("a", lock_ms=1_000)
    running = send(queue="b")
    claim("b", lock_ms=HOUR_MS)
    clock.advance(MINUTE)
    return {
        "scheduled": send(delay_ms=HOUR_MS),
        "ready": send(delay_ms=0),
        "running": running,
        "expired": expired,
    }


def test_a_status_is_computed_from_the_row_and_the_clock_of_the_database(root: Visitor, four: dict[str, int]) -> None:
    rows = {int(row["id"]): row["status"] for row in root.open(MESSAGES).rows}
    assert rows == {pk: status for status, pk in four.items()}


def test_the_list_can_be_narrowed_to_a_status(root: Visitor, four: dict[str, int]) -> None:
    for status, pk in four.items():
        page = root.open(MESSAGES, status=status)
        assert (page.ids, page.chosen("status")) == ([pk], [status])
    assert root.open(MESSAGES, status="lost").ids == []


def test_a_row_shows_the_main_columns(root: Visitor, clock: Clock) -> None:
    sign_in(queues=["mail"])
    pk = send(queue="mail", channel="acme", priority=7)
    assert retry(claim("mail")[0], ValueError("The line\nis busy")) == "retried"
    claim("mail", lock_ms=HOUR_MS)
    [row] = root.open_with_all_columns(MESSAGES).rows
    at = clock.at.strftime("%Y-%m-%d %H:%M:%S")
    assert row.pop("select all objects on this page for an action", "") == ""
    row = {name: text for name, text in row.items() if name}
    assert row == {
        "id": str(pk),
        "status": "running",
        "task": "send_receipt shop.tasks",
        "queue": "mail",
        "dequeue at": f"{at} 0 ms ago",
        "priority": "7",
        "attempt": "2 of 5",
        "last error": "The line is busy",
        "worker": "worker-1",
        "channel": "acme",
        "created at": at,
    }


def test_a_raw_message_is_marked_and_needs_no_worker(root: Visitor, db: None) -> None:
    """Its consumers do not sign in."""
    send(task=None, max_attempts=None, queue="mail")
    [row] = root.open_with_all_columns(MESSAGES).rows
    assert (row["task"], row["attempt"], row["queue"]) == ("raw message", "0", "mail")


def test_the_newest_come_first_and_ids_can_be_sorted_the_other_way(root: Visitor, db: None) -> None:
    sent = [send() for _ in range(3)]
    assert root.open(MESSAGES).ids == sent[::-1]
    assert root.open(MESSAGES, o="1").ids == sent


def test_waiting_messages_are_listed_in_the_order_of_dequeue(root: Visitor, clock: Clock) -> None:
    late = send(priority=0, dequeue_at=0)
    first = send(priority=5)
    early = send(priority=0, dequeue_at=-(2**63))
    other = send(queue="another", priority=-100)
    assert root.open(MESSAGES, status="ready").ids == [other, first, early, late]
    assert [message.id for message in claim(limit=3)] == [first, early, late]


def test_no_column_is_marked_as_the_order_of_a_line(root: Visitor, db: None) -> None:
    send()
    for marked, asked in ((["id"], {}), ([], {"status": "ready"}), (["id"], {"status": "ready", "o": "1"})):
        heads = root.open(MESSAGES, **asked).root.one("table", id="result_list").one("thead").all(class_="sorted")
        assert [head.one(class_="text").text.lower() for head in heads] == marked, asked


def test_running_messages_are_listed_by_the_end_of_their_lock(root: Visitor, clock: Clock) -> None:
    for queue in ("long", "short"):
        send(queue=queue)
    [long], [short] = claim("long", lock_ms=HOUR_MS), claim("short", lock_ms=1_000)
    assert root.open(MESSAGES, status="running").ids == [short.id, long.id]


class TestQueues:
    def test_the_filter_offers_all_queues(self, root: Visitor) -> None:
        mail, _, busy = send(queue="mail"), send(queue="default"), send(queue="busy")
        claim("busy")
        page = root.open(MESSAGES, queue="busy")
        assert page.choices("queue") == ["All", "busy", "default", "mail"]
        assert page.ids == [busy]
        assert root.open(MESSAGES, queue="mail").ids == [mail]

    def test_of_many_queues_some_are_offered_and_any_can_be_typed(self, root: Visitor) -> None:
        for number in range(CHOICES + 5):
            send(queue=f"tenant-{number:03}")
        page = root.open(MESSAGES)
        assert page.choices("queue") == ["All", *(f"tenant-{number:03}" for number in range(CHOICES))]
        assert [field.attributes["name"] for field in page.filter("queue").all("input", type="text")] == ["queue"]
        chosen = root.open(MESSAGES, queue="tenant-024")
        assert chosen.column("queue") == ["tenant-024 no worker"]
        assert chosen.chosen("queue") == ["tenant-024"]

    def test_many_channels_in_many_queues_do_not_make_the_list_slow(self, root: Visitor) -> None:
        """The names of the queues were looked for in each channel."""
        sql(
            "insert into pgqueue_message (queue, channel, task, content, dequeue_at) "
            "select 'q' || i %% 60, 'tenant-' || i / 60, 'shop.t', '{}', 0 from generate_series(1, 3600) as i"
        )
        with measured() as cost:
            assert len(root.open(MESSAGES).ids) == 50
        assert cost.buffers < 4_000, cost

    def test_a_queue_without_a_worker_is_marked(self, root: Visitor) -> None:
        send(queue="mail")
        [queue] = [row["queue"] for row in root.open(MESSAGES).cells]
        assert queue.text == "mail no worker"
        assert "manage.py qworker --queues mail" in queue.one(class_="pgqueue-label").attributes["title"]

    @pytest.mark.parametrize(
        ("queues", "exclude", "served"),
        [
            (None, (), True),
            (["mail"], (), True),
            (["default", "mail"], (), True),
            (["default"], (), False),
            ([], (), False),
            (None, ("mail",), False),
            (["mail"], ("mail",), False),
        ],
    )
    def test_a_worker_serves_the_queues_that_it_registered(
        self, root: Visitor, queues: list[str] | None, exclude: tuple[str, ...], served: bool
    ) -> None:
        send(queue="mail")
        sign_in(queues=queues, exclude=exclude)
        assert root.open(MESSAGES).column("queue") == ["mail" if served else "mail no worker"]

    def test_a_worker_not_seen_for_a_minute_does_not_count(self, root: Visitor, clock: Clock) -> None:
        send(queue="mail")
        sign_in()
        clock.advance(MINUTE)
        assert root.open(MESSAGES).column("queue") == ["mail no worker"]


class TestTasksAndChannels:
    def test_tasks_and_raw_messages_can_be_chosen(self, root: Visitor) -> None:
        one, other, raw = send(task="a.one"), send(task="a.other"), send(task=None)
        page = root.open(MESSAGES, task="a.one")
        assert page.choices("task") == ["All", "a.one", "a.other", "raw messages"]
        assert page.ids == [one]
        assert root.open(MESSAGES, task="(raw)").ids == [raw]
        assert root.open(MESSAGES).ids == [raw, other, one]

    def test_channels_can_be_chosen_where_there_are_some(self, root: Visitor) -> None:
        send()
        assert not root.open(MESSAGES).root.all("details", **{"data-filter-title": "channel"})
        acme = send(channel="acme")
        page = root.open(MESSAGES, channel="acme")
        assert page.choices("channel") == ["All", "acme"]
        assert page.ids == [acme]

    def test_a_field_for_another_name_keeps_the_other_filters(self, root: Visitor) -> None:
        for number in range(CHOICES + 1):
            send(task=f"tasks.t{number:03}")
        page = root.open(MESSAGES, queue="default", status="ready", q="tasks")
        hidden = {
            field.attributes["name"]: field.attributes["value"]
            for field in page.filter("task").all("input", type="hidden")
        }
        assert hidden == {"queue": "default", "status": "ready", "q": "tasks"}


class TestSearch:
    def test_an_id_is_found_exactly(self, root: Visitor) -> None:
        sent = [send() for _ in range(11)]
        assert root.open(MESSAGES, q=f" {sent[0]} ").ids == [sent[0]]

    def test_a_part_of_a_task_name_is_found(self, root: Visitor) -> None:
        receipt, _ = send(task="shop.tasks.send_receipt"), send(task="shop.tasks.remind")
        assert root.open(MESSAGES, q="RECEIPT").ids == [receipt]
        assert len(root.open(MESSAGES, q="shop.").ids) == 2

    @pytest.mark.parametrize(
        "text", ["9" * 18, "9" * 19, "9" * 5_000, "%", "_", "'", "\\", "²", "\N{FULLWIDTH DIGIT ONE}"]
    )
    def test_odd_texts_find_nothing_and_break_nothing(self, root: Visitor, text: str) -> None:
        send(task="a.b")
        assert root.open(MESSAGES, q=text).ids == []

    def test_a_search_with_a_null_character_is_an_error(self, root: Visitor) -> None:
        assert "Null characters are not allowed." in root.open(MESSAGES, q="\x00").said


class TestCount:
    def test_messages_are_counted_up_to_a_limit_and_pages_end_there(self, root: Visitor) -> None:
        sql("insert into pgqueue_message (dequeue_at, content) select 0, '{}' from generate_series(1, 10100)")
        ids = [pk for (pk,) in sql("select id from pgqueue_message order by id desc limit 10000")]
        page = root.open(MESSAGES)
        assert page.count.endswith("10 000+ messages")
        assert page.notes == ["Only the first 10 000 are counted and shown. Filter the list to see others."]
        assert page.ids == ids[:50]
        assert root.open(MESSAGES, p=200).ids == ids[-50:]
        assert root.open(MESSAGES, p=201).ids == ids[:50], "answered as Django answers a page that there is not"


def test_large_contents_are_not_fetched_for_the_list(root: Visitor, db: None) -> None:
    send('{"large": "' + "x" * 1_000_000 + '"}')
    with connection.execute_wrapper(_refuse("content", "headers", "state")):
        assert len(root.open(MESSAGES).ids) == 1


def _refuse(*columns: str) -> Callable[..., object]:
    def look(execute: Callable[..., object], statement: str, *more: object) -> object:
        assert not any(f'"pgqueue_message"."{column}"' in statement for column in columns), statement
        return execute(statement, *more)

    return look


def test_a_message_that_ends_between_two_queries_is_left_out(root: Visitor, db: None) -> None:
    kept, gone = send(), send()

    def end_it(execute: Callable[..., object], statement: str, *more: object) -> object:
        answer = execute(statement, *more)
        if 'AS "pk" FROM "pgqueue_message"' in statement:
            Message.objects.filter(pk=gone).delete()
        return answer

    with connection.execute_wrapper(end_it):
        assert root.open(MESSAGES).ids == [kept]


class TestRanges:
    """dequeue_at is a number of milliseconds, and is asked for by times."""

    @pytest.fixture(autouse=True)
    def days(self, clock: Clock) -> dict[str, int]:
        clock.move_to(dt.datetime(2026, 11, 1, tzinfo=dt.UTC))
        self.sent = {
            "first": self.at(2026, 11, 1),
            "noon": self.at(2026, 11, 2, 12),
            "last": self.at(2026, 11, 2, 23, 59, 59, 999_000),
            "third": self.at(2026, 11, 3),
            "ages ago": send(dequeue_at=-(2**63)),
            "never": send(dequeue_at=2**63 - 1),
        }
        return self.sent

    def at(self, *numbers: int) -> int:
        return send(dequeue_at=to_epoch_ms(dt.datetime(*numbers, tzinfo=dt.UTC)))  # type: ignore[arg-type,misc]

    def found(self, page: Page) -> set[str]:
        return {name for name, pk in self.sent.items() if pk in page.ids}

    def open(self, root: Visitor, **limits: str) -> Page:
        return root.open(MESSAGES, **{f"dequeue_at__range__{name}": value for name, value in limits.items()})

    def test_a_date_without_a_time_means_the_whole_day(self, root: Visitor) -> None:
        day = {"gte_0": "2026-11-02", "gte_1": "", "lte_0": "2026-11-02", "lte_1": ""}
        assert self.found(self.open(root, **day)) == {"noon", "last"}

    def test_each_end_may_be_open(self, root: Visitor) -> None:
        assert self.found(self.open(root, gte_0="2026-11-02")) == {"noon", "last", "third", "never"}
        assert self.found(self.open(root, lte_0="2026-11-01")) == {"first", "ages ago"}
        assert len(self.open(root, gte_0="", gte_1="", lte_0="", lte_1="").ids) == 6

    def test_times_are_exact(self, root: Visitor) -> None:
        noon = {"gte_0": "2026-11-02", "gte_1": "12:00:00", "lte_0": "2026-11-02", "lte_1": "12:00"}
        assert self.found(self.open(root, **noon)) == {"noon"}
        after = {"gte_0": "2026-11-02", "gte_1": "12:00:01", "lte_0": "2026-11-03", "lte_1": "00:00:00"}
        assert self.found(self.open(root, **after)) == {"last", "third"}

    @pytest.mark.parametrize(
        ("limits", "error"),
        [
            ({"gte_1": "10:00"}, "Enter a date as well."),
            ({"gte_0": "yesterday"}, "Enter a valid date."),
            ({"lte_0": "2026-02-30"}, "Enter a valid date."),
            ({"lte_0": "2026-02-01", "lte_1": "25:00"}, "Enter a valid time."),
        ],
    )
    def test_an_invalid_time_is_reported_and_matches_nothing(
        self, root: Visitor, limits: dict[str, str], error: str
    ) -> None:
        page = self.open(root, **limits)
        assert page.ids == []
        assert page.said == [f"Filter dequeue at: {error}"]
        assert error in page.filter("dequeue at").text

    @pytest.mark.parametrize("date", ["0001-01-01", "9999-12-31"])
    def test_ranges_may_reach_the_ends_of_the_calendar(self, root: Visitor, date: str) -> None:
        assert len(self.open(root, gte_0="0001-01-01").ids) == 5
        assert len(self.open(root, lte_0="9999-12-31").ids) == 5
        assert self.open(root, gte_0=date).response.status_code == 200

    def test_the_form_shows_what_was_asked_and_keeps_the_other_filters(self, root: Visitor) -> None:
        asked = {"dequeue_at__range__gte_0": "2026-11-02", "dequeue_at__range__gte_1": "12:00"}
        form = root.open(MESSAGES, queue="default", q="send", **asked).filter("dequeue at")
        assert parameters(form.one("a").attributes["href"]) == {"queue": ["default"], "q": ["send"]}, "to clear it"
        values = {field.attributes.get("name"): field.attributes.get("value") for field in form.all("input")}
        assert asked.items() <= values.items()
        hidden = {field.attributes["name"]: field.attributes["value"] for field in form.all("input", type="hidden")}
        assert hidden == {"queue": "default", "q": "send"}
        assert form.one("form").attributes["method"] == "get"

    def test_a_range_combines_with_a_status(self, root: Visitor, clock: Clock) -> None:
        clock.move_to(dt.datetime(2026, 11, 2, 13, tzinfo=dt.UTC))
        page = root.open(MESSAGES, status="scheduled", dequeue_at__range__lte_0="2026-11-02")
        assert self.found(page) == {"last"}

    def test_times_are_those_of_the_current_time_zone(self, root: Visitor, settings: object) -> None:
        settings.TIME_ZONE = "Asia/Kolkata"  # type: ignore[attr-defined]
        noon = {"gte_0": "2026-11-02", "gte_1": "17:30", "lte_0": "2026-11-02", "lte_1": "17:30"}
        page = self.open(root, **noon)
        assert self.found(page) == {"noon"}
        assert page.column("dequeue at")[0].startswith("2026-11-02 17:30:00")

    def test_a_day_whose_midnight_does_not_exist_has_a_beginning(self, root: Visitor, settings: object) -> None:
        settings.TIME_ZONE = "Africa/Cairo"  # type: ignore[attr-defined]  # 2026-04-24 begins at 1:00
        self.sent["summer"] = self.at(2026, 4, 23, 22, 30)
        assert "summer" in self.found(self.open(root, gte_0="2026-04-24"))

    def test_created_at_has_a_range_filter_too(self, root: Visitor) -> None:
        sql("update pgqueue_message set created_at = '2020-02-02 10:00Z' where id = %s", self.sent["noon"])
        day = {"created_at__range__gte_0": "2020-02-02", "created_at__range__lte_0": "2020-02-02"}
        assert self.found(root.open(MESSAGES, **day)) == {"noon"}
