"""Insights: what the report's rows come to on the page."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue.admin.dashboards import insights
from django_pgqueue.admin.dashboards.report_series import Figures
from django_pgqueue.models import ReportError, ReportHour, ReportQueue
from django_pgqueue.monitoring.overview import limits
from django_pgqueue.values.histogram import bucket
from tests.support.fixtures.admin import roll_up, sql

if TYPE_CHECKING:
    from tests.support.admin_page import Element, Page, Visitor

pytestmark = pytest.mark.django_db
INSIGHTS = "/admin/django_pgqueue/reporthour/"
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
COUNTS = ("enqueued", "succeeded", "deferred", "retried", "failed", "cancelled", "lost", "messages", "message_attempts")


def hour(
    hours: float = 0, *, waits: dict[float, int] | None = None, runs: dict[float, int] | None = None, **more: Any
) -> None:
    """``waits`` and ``runs`` are milliseconds and how often."""
    times = {
        f"{name}_{kind}": value
        for name, counts in (("wait", waits or {}), ("run", runs or {}))
        for kind, value in (
            ("histogram", {str(bucket(ms)): times for ms, times in counts.items()}),
            ("ms", sum(ms * times for ms, times in counts.items())),
        )
    }
    row = dict.fromkeys(COUNTS, 0) | {"queue": "mail", "task": "shop.tasks.send_receipt"} | times
    ReportHour.objects.create(hour=NOON + dt.timedelta(hours=hours), **{**row, **more})


def figures(page: Page) -> dict[str, str]:
    [shown] = page.root.all("dl", class_="pgqueue-numbers")
    return {div.one("dt").text: div.one("dd").text for div in shown.all("div")}


def charts(page: Page) -> dict[str, Element]:
    return {chart.one("strong").text: chart for chart in page.root.all("figure", class_="pgqueue-chart")}


def titles(chart: Element) -> list[str]:
    return [title.text for title in chart.all("title")]


def test_it_is_full_without_a_report(root: Visitor) -> None:
    roll_up(NOON, succeeded=98, failed=2, wait_ms=10, run_ms=100)
    roll_up(NOON, queue="mail", succeeded=100, wait_ms=1000, run_ms=100)
    page = root.open(INSIGHTS)
    found = figures(page)
    assert found["finished attempts"] == "200"
    assert found["failed"] == "1.0%"
    assert found["waited (p95)"] == "996 ms"
    assert "enqueued" not in found
    assert figures(root.open(INSIGHTS, queue="mail"))["finished attempts"] == "100"
    assert "Nothing has ended in these hours" in root.open(INSIGHTS, queue="other").root.text


def test_each_hour_comes_from_the_source_that_knows_more_of_it(root: Visitor) -> None:
    hour(0, succeeded=50, messages=50)
    roll_up(NOON, succeeded=20)
    hour(1, succeeded=5, messages=5)
    roll_up(NOON + dt.timedelta(hours=1), succeeded=30)
    assert figures(root.open(INSIGHTS))["finished attempts"] == "80"


def test_channels_are_of_the_report_alone(root: Visitor) -> None:
    hour(0, succeeded=5, messages=5, channel="a")
    roll_up(NOON + dt.timedelta(hours=1), succeeded=30)
    assert figures(root.open(INSIGHTS, channel="a"))["finished attempts"] == "5"


def test_hours_are_added_up_and_percentiles_are_those_of_all(root: Visitor) -> None:
    hour(0, succeeded=98, failed=2, messages=100, message_attempts=150, enqueued=120, waits={10: 98}, runs={100: 98})
    hour(
        1, succeeded=100, messages=100, message_attempts=100, waits={1000: 2}, runs={100: 100}, task="shop.tasks.other"
    )
    found = figures(root.open(INSIGHTS))
    assert found["enqueued"] == "120"
    assert found["finished attempts"] == "200"
    assert found["failed"] == "1.0%"
    assert found["attempts a message"] == "1.25"
    assert found["waited (p95)"] == "10.1 ms"
    assert "started too late" not in found


def test_each_hour_has_its_bar_and_hours_without_a_row_are_gaps(root: Visitor) -> None:
    hour(0, succeeded=5, waits={10: 5})
    hour(3, failed=1)
    shown = charts(root.open(INSIGHTS))
    assert titles(shown["Throughput"]) == ["Mar 1 12:00: 5 succeeded", "Mar 1 15:00: 1 failed", *zeros(4)]
    assert titles(shown["Waiting time"]) == [f"Mar 1 12:00: 10.1 ms {name}" for name in ("p50", "p95", "p99")]


def zeros(hours: int) -> list[str]:
    return [f"Mar 1 {12 + number}:00: 0 enqueued" for number in range(hours)]


def test_of_an_hour_that_a_clock_shows_twice_each_has_its_bar(root: Visitor, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    first = dt.datetime(2026, 10, 25, tzinfo=dt.UTC)
    for number in range(2):
        moment = first + number * dt.timedelta(hours=1)
        hour((moment - NOON) / dt.timedelta(hours=1), succeeded=5 + number)
        ReportQueue.objects.create(hour=moment, queue="mail", depth=1, depth_max=1, running=1.5, running_max=2, slots=2)
    shown = charts(root.open(INSIGHTS))
    bars = [title for title in titles(shown["Throughput"]) if "succeeded" in title]
    assert bars == ["Oct 25 02:00: 5 succeeded", "Oct 25 02:00: 6 succeeded"]
    assert [title for title in titles(shown["Running"]) if "average" in title] == ["Oct 25 02:00: 1.5 on average"] * 2


def test_a_longer_time_is_shown_by_the_day(root: Visitor) -> None:
    for hours in (0, 1, 5 * 24):
        hour(hours, succeeded=5)
    bars = [title for title in titles(charts(root.open(INSIGHTS))["Throughput"]) if "succeeded" in title]
    assert bars == ["Mar 1: 10 succeeded", "Mar 6: 5 succeeded"]


def test_the_last_seven_days_are_shown_unless_a_range_is_chosen(root: Visitor) -> None:
    hour(0, succeeded=5)
    hour(24 * 30, succeeded=7)
    page = root.open(INSIGHTS)
    assert figures(page)["finished attempts"] == "7"
    assert "last seven days" in page.root.text
    chosen = root.open(f"{INSIGHTS}?hour__range__gte_0=2026-03-01&hour__range__lte_0=2026-03-01")
    assert figures(chosen)["finished attempts"] == "5"


def test_hours_to_come_are_not_the_last_ones(root: Visitor) -> None:
    hour(0, succeeded=3, messages=3)
    hour(hours=24 * 365 * 50, succeeded=1, messages=1)
    roll_up(NOON + dt.timedelta(days=365 * 50), succeeded=1)
    assert figures(root.open(INSIGHTS))["finished attempts"] == "3"


def test_hours_to_come_are_not_shown(root: Visitor) -> None:
    hour(hours=24 * 365 * 50, succeeded=1, messages=1)
    assert "finished attempts" not in root.open(INSIGHTS).root.text


def test_a_queue_is_chosen_for_the_backlog_as_well(root: Visitor) -> None:
    hour(0, succeeded=5)
    hour(0, succeeded=7, queue="slow")
    for queue, depth in (("mail", 3), ("slow", 40)):
        ReportQueue.objects.create(
            hour=NOON, queue=queue, depth=depth, depth_max=depth * 2, running=1.5, running_max=2, slots=4
        )
    assert titles(charts(root.open(INSIGHTS))["Backlog"]) == [
        "Mar 1 12:00: 86 most at a time",
        "Mar 1 12:00: 43 at the end",
    ]
    shown = charts(root.open(f"{INSIGHTS}?queue=slow"))
    assert titles(shown["Backlog"])[1] == "Mar 1 12:00: 40 at the end"
    assert titles(shown["Running"])[0] == "Mar 1 12:00: 1.5 on average"


def test_tables_name_queues_slow_tasks_and_errors(root: Visitor) -> None:
    hour(0, succeeded=5, runs={10: 5})
    hour(0, failed=2, messages=2, runs={60_000: 2}, task="shop.tasks.monthly_report", sla_misses=1)
    ReportError.objects.create(
        hour=NOON, queue="mail", task="shop.tasks.monthly_report", error_class="builtins.<b>Error", attempts=2
    )
    page = root.open(INSIGHTS)
    queues, slowest, errors = (
        [[cell.text for cell in row.children if not isinstance(cell, str)] for row in table.one("tbody").all("tr")]
        for table in page.root.all("table", class_="pgqueue-table")
    )
    assert [row[0] for row in slowest] == ["shop.tasks.monthly_report", "shop.tasks.send_receipt"]
    assert queues[0][:3] == ["mail", "7", "100.0%"]
    assert queues[0][-1] == "1"
    assert errors == [["builtins.<b>Error", "shop.tasks.monthly_report", "2"]]
    assert figures(page)["started too late"] == "14.3%"


def test_the_page_without_a_report_names_the_command_for_one(root: Visitor) -> None:
    assert "qpipeline report" in root.open(INSIGHTS).root.text


def test_the_page_asks_the_same_number_of_queries_however_many_rows(
    root: Visitor, django_assert_max_num_queries: Any
) -> None:
    for hours in range(30):
        hour(hours, succeeded=1, task=f"t{hours % 7}", queue=f"q{hours % 3}")
    root.open(INSIGHTS)
    with django_assert_max_num_queries(22):
        root.open(INSIGHTS)


def test_tasks_that_failed_more_often_than_in_other_weeks_stand_at_the_top(root: Visitor) -> None:
    ago = (dt.datetime.now(dt.UTC) - NOON) // dt.timedelta(hours=1)
    page = root.open(INSIGHTS)
    assert "Unusual failures" not in page.root.text
    for hours, failed in ((1, 31), (2, 9), (3, 30), (4, 40)):
        hour(ago - hours, failed=failed, task="<b>often</b>")
        hour(ago - hours - 168, failed=10 if hours < 4 else 14, task="<b>often</b>")
    for hours, failed in ((1, 12), (1 + 168, 0), (1 + 7 * 168, 12)):
        hour(ago - hours, failed=failed, queue="reports", task=None)
    page = root.open(INSIGHTS, queue="default")
    [table] = page.root.all("table", class_="pgqueue-unusual")
    found = [[cell.text for cell in (row.one("th"), *row.all("td"))] for row in table.one("tbody").all("tr")]
    when = f"{NOON + dt.timedelta(hours=ago - 1):%Y-%m-%d %H:%M} UTC"
    assert found == [["<b>often</b>", "mail", when, "31", "10"], ["raw messages", "reports", when, "12", "0"]]


HISTOGRAMS = (
    "[]", "null", "7", '"text"', '{"a": 1}', '{"": 1}', '{"5": "x"}', '{"5": []}', '{"5": null}', '{"5": 1.5}',
    '{"5": -1}', '{"5": 1e400}', '{"1e5": 1}', '{"--5": 1}', '{"²": 1}', '{"99999": 1}', '{"-999999999": 1}',
    '{"5": true}', '{"5": 1' + "0" * 400 + "}", '{"' + "9" * 5000 + '": 1}',
)  # fmt: skip


def test_a_row_that_another_program_has_written_breaks_no_page(root: Visitor) -> None:
    hour(waits={100: 1}, runs={100: 1}, succeeded=1)
    hour(1)
    ReportQueue.objects.create(hour=NOON, queue="mail", depth=0, depth_max=0, running=0, running_max=0, slots=0)
    broken = ReportHour.objects.latest("pk")
    whole = figures(root.open(INSIGHTS))
    for one in HISTOGRAMS:
        sql("update pgqueue_report_hour set wait_histogram = %s, run_histogram = %s where id = %s", one, one, broken.pk)
        assert figures(root.open(INSIGHTS)) == whole, one
    for column in ("succeeded", "messages", "sla_misses"):
        for number in (-(2**63), 2**63 - 1):
            sql(f"update pgqueue_report_hour set {column} = %s where id = %s", number, broken.pk)
            root.open(INSIGHTS)
    for figure in ("Infinity", "-Infinity", "NaN", "1e308", "-1"):
        sql("update pgqueue_report_hour set wait_ms = %s, run_ms = %s where id = %s", figure, figure, broken.pk)
        sql("update pgqueue_report_queue set running = %s", figure)
        root.open(INSIGHTS)


def test_a_server_without_room_for_locks_is_no_error_page(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the history has more days than max_locks_per_transaction allows."""
    hour()
    with connection.cursor() as cursor:
        cursor.execute("""
            create function pg_temp.full() returns boolean language plpgsql as $$
            begin raise out_of_memory using message = 'no shared memory', hint = 'Give it more.'; end $$
        """)

    def full(chosen: Any, *of: Any) -> Figures:
        return Figures(chosen.extra(where=["pg_temp.full()"]), *of)

    monkeypatch.setattr(insights, "Figures", full)
    page = root.open(INSIGHTS)
    assert page.notes[0].startswith(
        "PostgreSQL lacks the resources for this query: no shared memory: Give it more. The"
    )


@pytest.mark.django_db(transaction=True)
def test_a_period_that_takes_too_long_is_tried_once(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    hour()

    def slow(chosen: Any, *of: Any) -> Figures:
        return Figures(chosen.extra(where=["pg_sleep(600) is not null"]), *of)

    monkeypatch.setattr(insights, "Figures", slow)
    monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "300ms")
    page = root.open(INSIGHTS, queue="mail")
    assert "was cancelled. The list shows no rows. Its filters are still set" in page.notes[0]
    assert "Nothing has ended in these hours" not in page.root.text
    assert page.chosen("queue") == ["mail"]
    assert not page.said
