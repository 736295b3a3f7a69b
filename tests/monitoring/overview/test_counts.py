"""What is shown of a queue is what a group by over the table finds, or about that."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import control
from django_pgqueue.management.terminal import status
from django_pgqueue.monitoring import overview, waiting
from django_pgqueue.monitoring.overview import budget, census, counts, queries
from django_pgqueue.monitoring.overview.figure import Figure
from django_pgqueue.values.times import OUT_OF_REACH_MS, PARKED_MS
from tests.support.fixtures.admin import NOON, send, sql

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.usefixtures("noon")

STATES = ("ready", "scheduled", "after_others", "running", "expired")
NOON_MS = int(NOON.timestamp() * 1000)
HOUR = dt.timedelta(hours=1)

BY_QUEUE = """
select queue,
       case when unlock_at is not null then case when unlock_at > %(now)s then 'running' else 'expired' end
            when dequeue_at <= %(now)s then 'ready'
            when dequeue_at = 9223372036854775807 then 'after_others'
            when dequeue_at = 9223372036854775806 then 'parked' else 'scheduled' end as state,
       count(*)
from pgqueue_message group by 1, 2
"""


def truth() -> Counter[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(BY_QUEUE, {"now": NOON_MS})
        return Counter({(queue, state): number for queue, state, number in cursor.fetchall()})


def shown() -> dict[tuple[str, str], Figure]:
    with overview.bounded("default"):
        found = overview.taken("default", at=NOON)
    return {(one.name, state): getattr(one.count, state) for one in found.queues for state in STATES}


def strew(seed: int, rows: int = 400) -> None:
    """Messages of all kinds in some queues and channels."""
    chosen = random.Random(seed)
    queues = [f"q{number}" for number in range(chosen.randint(1, 9))]

    def message() -> tuple[Any, ...]:
        dequeue_at = NOON_MS + chosen.randint(-(10**6), 10**6)
        held = chosen.choice([None] * 4 + [NOON_MS - 1000, NOON_MS + 60_000])
        if held is None:
            dequeue_at = chosen.choice([dequeue_at] * 6 + [OUT_OF_REACH_MS, PARKED_MS])
        return (
            min(chosen.choices(queues, k=3)), chosen.choice([None, None, "acme", "zeta"]), dequeue_at, held,
            chosen.choice([-3, 0, 0, 7]), chosen.choice([None, "shop.t"]), dequeue_at <= NOON_MS,
        )  # fmt: skip

    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into pgqueue_message (queue, channel, dequeue_at, unlock_at, worker, locked_at, priority, task, "
            "in_line, content) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, '{}')",
            [
                (queue, channel, dequeue_at, held, held and "w", held and NOON, priority, task, in_line)
                for queue, channel, dequeue_at, held, priority, task, in_line in (message() for _ in range(rows))
            ],
        )


def lay(queues: Iterable[tuple[str, int]]) -> None:
    """Ready messages, those of each queue beside each other, as an enqueue of many leaves them."""
    for queue, number in queues:
        sql(
            "insert into pgqueue_message (queue, dequeue_at, task, content) "
            "select %s, %s + i, 'shop.t', '{}' from generate_series(1, %s) i",
            queue, NOON_MS - 10**7, number,
        )  # fmt: skip


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is too large for a count, and the sample has missed all messages."""
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 0)


@pytest.mark.parametrize("seed", range(8))
def test_the_numbers_are_those_of_a_group_by(seed: int) -> None:
    strew(seed)
    true, found = truth(), shown()
    assert all(figure.is_exact for figure in found.values())
    assert {key: figure.value for key, figure in found.items() if figure.value} == {
        key: number for key, number in true.items() if key[1] != "parked"
    }


@pytest.mark.parametrize("seed", range(8, 16))
@pytest.mark.usefixtures("sampled")
def test_beyond_the_budget_small_queues_are_counted_all_the_same(seed: int) -> None:
    strew(seed)
    true, found = truth(), shown()
    assert all(figure.is_exact for figure in found.values())
    assert {key: figure.value for key, figure in found.items()} == {key: true[key] for key in found}
    assert {queue for queue, state in true if state != "parked"} <= {queue for queue, _ in found}


@pytest.mark.parametrize("seed", range(16, 24))
@pytest.mark.usefixtures("sampled")
def test_a_figure_is_exact_or_says_that_it_is_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_PROBED", 12)
    strew(seed)
    true, found = truth(), shown()
    about = [key for key, figure in found.items() if not figure.is_exact]
    assert about, "some are larger than what was counted"
    for (queue, state), figure in found.items():
        number = true[queue, state]
        at_least = 13 if state in counts.WAITING else 0
        assert figure.value == number if figure.is_exact else at_least <= figure.value <= number, (queue, state)


@pytest.mark.parametrize("seed", [24, 25])
def test_a_sample_of_everything_is_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all blocks in the sample, the estimates are off by their rounding alone."""
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(counts, "MAX_PROBED", 0)
    strew(seed, rows=3_000)
    [[blocks]] = sql(census.SIZE)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", blocks - 1e-9)
    true, found = truth(), shown()
    for key, figure in found.items():
        assert figure.value == pytest.approx(true[key], rel=0.01), key


@pytest.mark.slow
@pytest.mark.parametrize("probed", [300_000, 4_000])
def test_an_estimate_keeps_order_and_magnitude_of_clustered_queues(
    monkeypatch: pytest.MonkeyPatch, probed: int
) -> None:
    monkeypatch.setattr(census, "MAX_BLOCKS", 0)
    monkeypatch.setattr(counts, "ALTOGETHER", probed)
    sql("truncate pgqueue_message")  # what is rolled back then leaves no dead rows to other tests
    sizes = {f"small-{number:02}": 50 + 50 * number for number in range(39)}
    lay([*list(sizes.items())[:20], ("large", 60_000), *list(sizes.items())[20:]])
    [[blocks]] = sql(census.SIZE)
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", blocks // 4)
    found = {queue: figure for (queue, state), figure in shown().items() if state == "ready"}
    assert not found["large"].is_exact
    assert 40_000 < found["large"].value < 90_000
    assert all(figure.value < 20_000 for queue, figure in found.items() if queue != "large")
    for queue, size in sizes.items():
        figure = found[queue]
        assert figure.value == size if figure.is_exact else figure.value >= min(size, 30), queue
        assert figure.is_exact or probed == 4_000


def test_a_count_that_takes_too_long_is_given_up_and_the_page_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lay([("mail", 40)])
    monkeypatch.setattr(census, "SAMPLED_BLOCKS", 0)
    slow = f"{census.ALL} union all select 'slow', pg_sleep(60)::text::integer, 0, 0, 0, 0, 0, 0"
    monkeypatch.setattr(census, "ALL", slow)
    monkeypatch.setattr(budget, "BUDGET_MS", 20)
    with overview.bounded("default"):
        settings = ("statement_timeout", "enable_seqscan", *queries.PINNED)
        before = [sql(f"show {name}") for name in settings]
        [mail] = overview.taken("default", at=NOON).queues
        assert [sql(f"show {name}") for name in settings] == before
    assert mail.count.ready == Figure(40)


@pytest.mark.usefixtures("sampled")
def test_of_too_many_lanes_the_rest_is_not_claimed_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_LANES", 3)
    for number in range(6):
        send(channel=f"tenant-{number}")
    assert shown()["default", "ready"] == Figure(3, is_exact=False)


def test_many_lanes_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_LANES", 3)
    for number in range(6):
        send(channel=f"tenant-{number}")
    assert shown()["default", "ready"] == Figure(6)


@pytest.mark.usefixtures("sampled")
def test_what_runs_is_counted_by_the_locks_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    strew(30)
    true = truth()
    monkeypatch.setattr(counts, "MAX_PROBED", sum(number for (_, state), number in true.items() if state == "expired"))
    found = shown()
    for (queue, state), figure in found.items():
        if state == "expired":
            assert figure == Figure(true[queue, state])
        if state == "running":
            assert not figure.value or not figure.is_exact


@pytest.mark.parametrize("beyond", [False, True])
def test_of_many_queues_those_that_matter_are_shown(monkeypatch: pytest.MonkeyPatch, beyond: bool) -> None:
    monkeypatch.setattr(counts, "QUEUES", 3)
    lay([("a", 1), ("b", 2), ("c", 1), ("y", 300), ("z", 30)])
    control.pause("p", by="Ada")
    if beyond:
        monkeypatch.setattr(census, "MAX_BLOCKS", 0)
        [[blocks]] = sql(census.SIZE)
        monkeypatch.setattr(census, "SAMPLED_BLOCKS", blocks - 1e-9)
    with overview.bounded("default"):
        found = overview.taken("default", at=NOON)
    assert [one.name for one in found.queues] == ["p", "y", "z"]
    assert found.more_queues


def test_a_queue_that_is_asked_for_is_counted_beside_many_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "LISTED", 1)
    lay([("a", 5), ("b", 4), ("c", 3)])
    with overview.bounded("default"):
        found = overview.taken("default", at=NOON, queues=["c", "none"])
        everything = overview.taken("default", at=NOON)
    assert [(one.name, one.count.ready.value) for one in found.queues] == [("c", 3), ("none", 0)]
    assert (found.more_queues, everything.more_queues) == (False, True)


@pytest.mark.parametrize("beyond", [False, True])
def test_the_doctor_says_the_number_that_the_overview_shows(monkeypatch: pytest.MonkeyPatch, beyond: bool) -> None:
    if beyond:
        monkeypatch.setattr(census, "MAX_BLOCKS", 0)
        monkeypatch.setattr(census, "SAMPLED_BLOCKS", 0)
        monkeypatch.setattr(counts, "MAX_PROBED", 100)
    lay([("large", 250), ("small", 30)])
    with overview.bounded("default"):
        found = overview.taken("default", at=NOON)
        told = {reason.queue: count for reason, count in waiting.idle_queues(NOON, using="default")}
    assert {one.name: one.count for one in found.queues} == told
    assert [count.ready.is_exact for count in told.values()] == [not beyond, True]
    assert status.number(told["large"].ready) == ("~101" if beyond else "250")
