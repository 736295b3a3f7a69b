"""By how much a backlog grows or shrinks in a minute."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import alerts, trend
from django_pgqueue.monitoring.overview.census import Census, States
from django_pgqueue.monitoring.overview.throughput import Pulse, Pulses
from django_pgqueue.worker.upkeep import bloat
from tests.support.fixtures.admin import claim, complete, retry, send, sign_in, sql

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture(autouse=True)
def _look(monkeypatch: pytest.MonkeyPatch, noon: Clock) -> None:
    monkeypatch.setattr(bloat, "found", lambda _: iter(()))
    sql("delete from pgqueue_worker")


def growth(queue: str = "bulk") -> float | None:
    with overview.bounded("default"):
        [found] = [one for one in overview.taken("default").queues if one.name == queue]
    return found.growth


def arrive(noon: Clock, count: int) -> None:
    """So many messages, created at the time of the clock."""
    for _ in range(count):
        send(queue="bulk")
    sql("update pgqueue_message set created_at = %s where created_at > %s", noon.at, noon.at)


def test_a_backlog_grows_by_what_came_and_shrinks_by_what_began(noon: Clock) -> None:
    arrive(noon, 30)
    noon.advance(dt.timedelta(minutes=20))
    assert growth() == 0
    arrive(noon, 50)
    noon.advance(dt.timedelta(minutes=5))
    assert growth() == 5
    claim("bulk", limit=10, lock_ms=3_600_000)  # they run
    assert growth() == 4
    for received in claim("bulk", limit=20):
        complete(received, finished_at=noon.at, started_at=noon.at)
    assert growth() == 2
    for received in claim("bulk", limit=20):  # came and went: in neither backlog
        complete(received, finished_at=noon.at, started_at=noon.at)
    assert growth() == 0


def test_a_retry_leaves_the_backlog_and_comes_back(noon: Clock) -> None:
    arrive(noon, 10)
    noon.advance(dt.timedelta(minutes=20))
    for received in claim("bulk", limit=10):
        retry(received, dequeue_at=int(noon.at.timestamp() * 1000), started_at=noon.at, finished_at=noon.at)
    assert growth() == 0


def test_the_line_of_a_backlog_has_its_trend(noon: Clock) -> None:
    sign_in()
    arrive(noon, 6)
    noon.advance(dt.timedelta(minutes=35))
    arrive(noon, 200)
    noon.advance(dt.timedelta(minutes=5))
    sign_in()
    with overview.bounded("default"):
        [one] = alerts.of(overview.taken("default"))
    assert one.text == ("206 wait in bulk, +20 a minute, the first for 40 min; none has ended in the last ten minutes.")


def test_a_sample_that_does_not_tell_is_left_out() -> None:
    pulses = Pulses(queues={"bulk": Pulse(worked_off=900)}, step=300)
    few = Census(queues={"bulk": States(ready=50, newly_ready=10)}, scale=100, is_whole=True)
    assert trend.a_minute("bulk", few, pulses) is None
    many = Census(queues={"bulk": States(ready=50_000, newly_ready=40_000)}, scale=100, is_whole=True)
    assert trend.a_minute("bulk", many, pulses) == pytest.approx((4_000_000 - 900) / 10)
    others = Census(queues={}, scale=None, is_whole=False)
    assert trend.a_minute("bulk", others, Pulses(queues={}, step=1)) is None
    assert trend.a_minute("bulk", Census(queues={}, scale=None, is_whole=True), Pulses(queues={}, step=1)) == 0
