"""Pages that an index serves cost the same when the tables have grown tenfold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.monitoring import waiting
from django_pgqueue.monitoring.overview import counts, throughput
from tests.admin.cost import AT_MOST, SERVED, fill, measured, partitions, rare
from tests.support.fixtures.admin import MESSAGES, sql

if TYPE_CHECKING:
    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.slow


@pytest.mark.django_db
def test_ten_times_the_rows_do_not_cost_more(root: Visitor) -> None:
    sql("truncate pgqueue_message, pgqueue_attempt")  # undone with the test
    partitions()
    rare()
    fill(21_000)
    small = {url: buffers(root, url) for url in SERVED}
    fill(190_000)
    large = {url: buffers(root, url) for url in SERVED}
    grown = {url: (small[url], large[url]) for url in SERVED if large[url] > max(1.3 * small[url] + 150, AT_MOST)}
    assert not grown, grown


OVERVIEW = "/admin/django_pgqueue/overview/"


@pytest.mark.django_db
def test_neither_do_they_for_the_overview_and_the_place_of_a_message(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what is counted at all."""
    monkeypatch.setattr(counts, "ALTOGETHER", 1_000)
    monkeypatch.setattr(waiting, "MAX_POSITION", 500)
    monkeypatch.setattr(throughput, "SAMPLE", 300)
    sql("truncate pgqueue_message, pgqueue_attempt")  # undone with the test
    partitions()
    fill(21_000)
    small = {url: buffers(root, url) for url in (OVERVIEW, last_ready())}
    fill(190_000)
    large = {url: buffers(root, url) for url in (OVERVIEW, last_ready())}
    assert max(small.values()) < 15_000, small
    for before, after in zip(small.values(), large.values(), strict=True):
        assert after < 1.6 * before + 150, (small, large)  # rows that were in one page are in two


def last_ready() -> str:
    """The page of a ready message that has all the others of its queue before it."""
    [[pk]] = sql(
        "select id from pgqueue_message where queue = 'default' and task is not null and unlock_at is null "
        "and dequeue_at <= pgqueue_now() order by priority, dequeue_at desc limit 1"
    )
    return f"{MESSAGES}{pk}/change/"


def buffers(root: Visitor, url: str) -> int:
    with measured() as cost:
        root.open(url)
    assert not cost.scanned
    return cost.buffers
