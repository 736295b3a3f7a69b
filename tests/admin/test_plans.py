"""No page reads a large table from one end to the other, whatever is asked and whatever the statistics say."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.monitoring import waiting
from django_pgqueue.monitoring.overview import budget, census, counts, failures, throughput
from django_pgqueue.monitoring.overview.limits import bounded
from tests.admin.cost import AT_MOST, DAYS, fill, measured, partitions, rare
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django import DjangoDbBlocker

    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.slow

ROWS = 210_000
OVERVIEW = "/admin/django_pgqueue/overview/"
TODAY = dt.datetime.now(dt.UTC).date()
YESTERDAY = TODAY - dt.timedelta(days=1)
TOMORROW = TODAY + dt.timedelta(days=1)

# What an index leads to.
SERVED = {
    MESSAGES: [
        "",
        "o=1",
        "p=200",
        "status=scheduled&queue=mail",
        "status=ready&queue=mail",
        "status=running",
        "status=expired",
        "queue=rare",
        "channel=rare",
        "q=77",
    ],
    ATTEMPTS: ["", "o=1", "p=200", "message_id=77", "q=77"],
}
QUESTIONS = {
    MESSAGES: [
        "status=scheduled",
        "status=scheduled&p=200",
        "status=ready",
        "queue=mail",
        "queue=none",
        "task=shop.tasks.t1",
        "task=shop.rare",
        "task=(raw)",
        "channel=tenant-1",
        f"dequeue_at__range__gte_0={TOMORROW}&dequeue_at__range__lte_0={TOMORROW}",
        "dequeue_at__range__lte_0=1971-01-01",
        f"created_at__range__gte_0={YESTERDAY}&created_at__range__lte_0={YESTERDAY}",
        "created_at__range__lte_0=1971-01-01",
        "q=rare",
        "q=nothing",
    ],
    ATTEMPTS: [
        "q=tasks.t1",
        "q=nothing",
        "status__exact=failed",
        "status__exact=lost",
        "final__exact=0",
        "error_class=ValueError",
        "queue=mail",
        "task=shop.tasks.t1",
        "channel=nothing",
        "duration__range__gte=1.9",
        "duration__range__gte=3600",
        "wait__range__gte=3600",
        f"finished_at__range__gte_0={YESTERDAY}&finished_at__range__gte_1=10:00&finished_at__range__lte_0={YESTERDAY}",
        f"finished_at__range__gte_0={YESTERDAY}&status__exact=failed",
        "finished_at__range__lte_0=1971-01-01",
    ],
}
ASKED = [
    (f"{url}?{question}", most)
    for asked, most in ((SERVED, AT_MOST), (QUESTIONS, math.inf))
    for url, questions in asked.items()
    for question in questions
]


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[str]]:
    """Tables that were analysed when they were empty, and are full now."""
    with django_db_blocker.unblock():
        sql("truncate pgqueue_message, pgqueue_attempt")
        tables = partitions()
        for table in tables:
            sql(f"alter table {table} set (autovacuum_enabled = off)")
        # A queue that has been drained has pages and no rows; the next days of the history have neither.
        fill_and_drain()
        for table in tables:
            sql(f"analyze {table}")
        rare()
        fill(ROWS)
        yield tables
        sql("truncate pgqueue_message, pgqueue_attempt, pgqueue_channel, pgqueue_lane, pgqueue_arrival")
        for table in tables:
            sql(f"alter table {table} reset (autovacuum_enabled)")
        for days in range(1, DAYS + 1):
            sql(f"drop table pgqueue_attempt_{TODAY - dt.timedelta(days=days):%Y%m%d}")


def fill_and_drain() -> None:
    sql("insert into pgqueue_message (dequeue_at, content) select 0, '{}' from generate_series(1, 5000)")
    sql("delete from pgqueue_message")


@pytest.fixture(scope="module", params=["analysed when empty", "analysed when full"])
def statistics(request: pytest.FixtureRequest, filled: list[str], django_db_blocker: DjangoDbBlocker) -> str:
    with django_db_blocker.unblock():
        if request.param == "analysed when full":
            for table in [*filled, "pgqueue_attempt"]:
                sql(f"analyze {table}")
    return str(request.param)


@pytest.mark.parametrize(("question", "most"), ASKED)
def test_a_list_scans_no_table_and_reads_few_rows_with_an_index(
    root: Visitor, statistics: str, question: str, most: float
) -> None:
    with measured() as cost:
        page = root.open(question)
    assert page.response.request["PATH_INFO"] + "?" + page.response.request["QUERY_STRING"] == question
    assert not page.said, "stopped, or not understood"
    assert cost.statements
    assert not cost.scanned, cost.statements
    assert cost.buffers < most, cost


@pytest.mark.parametrize("question", ["", "status=ready&queue=mail", "status=running", "queue=rare"])
def test_an_open_list_that_asks_again_costs_what_the_list_costs(root: Visitor, statistics: str, question: str) -> None:
    # The first page has none of them: each is looked for by its key.
    shown = "&".join(f"live={pk}" for (pk,) in sql("select id from pgqueue_message order by id limit 50"))
    with measured() as cost:
        answer = root.client.get(f"{MESSAGES}?{question}&{shown}")
    assert len(answer.json()["rows"]) == 50
    assert not cost.scanned, cost.statements
    assert cost.buffers < AT_MOST, cost


def test_a_page_of_one_row_costs_a_few_probes(root: Visitor, statistics: str) -> None:
    [[message]] = sql("select max(id) from pgqueue_message")
    [[attempt]] = sql("select max(id) from pgqueue_attempt")
    for url in (f"{MESSAGES}{message}/change/", f"{ATTEMPTS}{attempt}/change/"):
        with measured() as cost:
            root.open(url)
        assert not cost.scanned
        assert cost.buffers < 300, (url, cost)


def test_the_overview_of_a_small_table_reads_it_once(
    root: Visitor, statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "BUDGET_MS", 60_000)
    with measured() as cost:
        page = root.open(OVERVIEW)
    assert not page.notes, "stopped"
    assert cost.scanned == {"pgqueue_message"}
    [[blocks]] = sql(census.SIZE)
    assert cost.buffers < blocks + 3 * 10 * throughput.SAMPLE, cost.buffers


@pytest.fixture
def beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are too large for a count."""
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 500)
    monkeypatch.setattr(failures, "SAMPLED", 0)
    monkeypatch.setattr(failures, "MAX_ERRORS", 0)


@pytest.mark.usefixtures("beyond")
def test_the_overview_of_a_large_table_reads_a_sample(root: Visitor, statistics: str) -> None:
    with measured() as cost:
        page = root.open(OVERVIEW)
    assert not page.notes, "stopped"
    assert not cost.scanned, cost.statements
    # Two numbers of each queue, and each row may be in a page of its own.
    assert cost.buffers < 2 * len(page.root.one("tbody").all("tr")) * AT_MOST + 3 * 10 * throughput.SAMPLE, cost.buffers


@pytest.mark.usefixtures("beyond")
def test_counting_on_reads_no_messages_of_other_queues(db: None, statistics: str) -> None:
    sql(
        "insert into pgqueue_message (queue, dequeue_at, in_line, task, content) "
        "values ('later', pgqueue_now() + 10^12::bigint, false, 'shop.t', '{}')"
    )
    with bounded("default"):
        look = counts.taken(dt.datetime.now(dt.UTC), using="default")
        with measured() as cost:
            found = counts.of(["later"], look, using="default")
    assert found["later"].scheduled.value == 1
    assert cost.buffers < 500, cost


def test_failures_are_counted_by_the_index_of_errors(
    db: None, statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "BUDGET_MS", 60_000)
    now = dt.datetime.now(dt.UTC)
    costs = []
    for sampled in (failures.SAMPLED, 0):
        monkeypatch.setattr(failures, "SAMPLED", sampled)
        with measured() as cost, bounded("default"):
            found = failures.taken(now, using="default")
        assert not cost.scanned, cost.statements
        assert cost.buffers < 300, cost
        costs.append(dict(found))
    assert costs[0] == costs[1] != {}


@pytest.mark.usefixtures("beyond")
def test_a_sample_of_the_errors_reads_no_other_attempts(db: None, statistics: str) -> None:
    with measured() as cost, bounded("default"):
        failures.taken(dt.datetime.now(dt.UTC), using="default")
    assert not cost.scanned, cost.statements
    assert cost.buffers < 10 * failures.RANGES, cost


def test_the_errors_page_reads_a_bounded_number_of_attempts(root: Visitor, statistics: str) -> None:
    for url in (f"{ATTEMPTS}errors/?period=30d", f"{ATTEMPTS}edit/?status__exact=failed"):
        with measured() as cost:
            page = root.open(url)
        assert page.response.status_code == 200
        assert not page.said, "stopped"
        assert not cost.scanned, cost.statements
        assert cost.buffers < 2 * AT_MOST, (url, cost.buffers)


def last_ready() -> str:
    """The page of a ready message that has all the others of its queue before it."""
    [[pk]] = sql(
        "select id from pgqueue_message where queue = 'default' and task is not null and unlock_at is null "
        "and dequeue_at <= pgqueue_now() order by priority, dequeue_at desc limit 1"
    )
    return f"{MESSAGES}{pk}/change/"


def test_the_position_of_a_message_reads_only_the_counted_rows(root: Visitor, statistics: str) -> None:
    url = last_ready()
    with measured() as cost:
        page = root.open(url)
    assert "position 10\xa0000+" in page.fields["waits because"].raw_text
    assert not cost.scanned
    assert cost.buffers < AT_MOST + 500, cost.buffers


@pytest.mark.parametrize("url", [lambda: OVERVIEW, last_ready], ids=["overview", "place"])
def test_a_lower_counting_limit_costs_less_however_many_rows_exist(
    root: Visitor, statistics: str, monkeypatch: pytest.MonkeyPatch, url: Callable[[], str]
) -> None:
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 100)
    monkeypatch.setattr(counts, "ALTOGETHER", 1_000)
    monkeypatch.setattr(waiting, "MAX_POSITION", 500)
    monkeypatch.setattr(throughput, "SAMPLE", 300)
    asked = url()
    with measured() as cost:
        root.open(asked)
    assert not cost.scanned
    assert cost.buffers < 15_000, cost.buffers
