"""Messages that failed for good, in a day and in an hour."""

from __future__ import annotations

import datetime as dt

import pytest

from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import budget, failures, queries
from django_pgqueue.monitoring.overview.figure import Figure
from tests.support.fixtures.admin import NOON, sql

HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def history(noon: object) -> None:
    """A file of its own, which is gone with the transaction: other tests find no dead rows."""
    sql("truncate pgqueue_attempt")


def ended(queue: str, status: str, rows: int, *, since: dt.timedelta) -> None:
    """Attempts at even times until now."""
    sql(
        "insert into pgqueue_attempt (message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority, "
        "final, status, queue, task) select i, 0, at, at, at, 1, 0, true, %s, %s, 'shop.t' "
        "from (select i, %s::timestamptz - %s + i * (%s / %s::float) as at from generate_series(1, %s) i) as times",
        status, queue, NOON, since, since, rows + 1, rows,
    )  # fmt: skip


def taken() -> failures.AllFailures:
    with overview.bounded("default"):
        return failures.taken(NOON, using="default")


def test_failures_of_a_day_and_of_an_hour_are_counted() -> None:
    ended("mail", "failed", 48, since=24 * HOUR)
    ended("old", "failed", 5, since=24 * HOUR)
    sql("update pgqueue_attempt set finished_at = finished_at - interval '1 day' where queue = 'old'")
    ended("yard", "failed", 7, since=HOUR)
    ended("yard", "lost", 3, since=HOUR)
    ended("yard", "succeeded", 30, since=HOUR)
    found = taken()
    assert dict(found) == {
        "mail": failures.Failures(Figure(48), Figure(2)), "yard": failures.Failures(Figure(7), Figure(7)),
    }  # fmt: skip
    assert found["other"] == failures.Failures(Figure(0), Figure(0))


def test_few_failures_are_counted_among_many_retries() -> None:
    ended("busy", "retried", 12_000, since=20 * HOUR)
    ended("mail", "failed", 19, since=HOUR)
    ended("busy", "retried", 12_000, since=HOUR)
    assert taken() == {"mail": failures.Failures(Figure(19), Figure(19))}


@pytest.mark.parametrize("why", ["too many", "too slow"])
def test_beyond_the_budget_failures_are_estimated(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(failures, "SAMPLED", 2_000)
    if why == "too many":
        monkeypatch.setattr(failures, "MAX_ERRORS", 0)
    else:
        monkeypatch.setattr(failures, "COUNTED", "select 'slow', pg_sleep(60)::text::integer, 0")
        monkeypatch.setattr(budget, "BUDGET_MS", 20)
    ended("mail", "failed", 6_000, since=24 * HOUR)
    ended("yard", "failed", 300, since=24 * HOUR)
    ended("busy", "retried", 12_000, since=24 * HOUR)
    found = taken()
    assert not any(figure.is_exact for queue in ("mail", "yard", "busy", "none") for figure in found[queue])
    assert found["mail"].of_a_day.value == pytest.approx(6_000, rel=0.5)
    assert found["yard"].of_a_day.value < 1_000
    assert found["mail"].of_an_hour.value < 1_000
    assert found["busy"].of_a_day.value == found["none"].of_a_day.value == 0


def test_without_any_attempt_nothing_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "SAMPLED", -1)
    monkeypatch.setattr(failures, "MAX_ERRORS", -1)
    assert taken() == {}


def test_a_sample_looks_each_range_up_and_does_not_compare_all_errors_with_all_ranges() -> None:
    ended("busy", "retried", 30_000, since=24 * HOUR)
    ended("mail", "failed", 2_000, since=24 * HOUR)
    sql("analyze pgqueue_attempt")
    day = NOON.replace(hour=0) - dt.timedelta(days=1)
    asked = {"day_ago": NOON - 24 * HOUR, "hour_ago": NOON - HOUR, "day": day, "end": day + dt.timedelta(days=3)}
    [[first, last]] = sql("select min(id), max(id) from pgqueue_attempt")
    ranges = {"first": first, "last": last, "step": 20, "width": 2}
    with overview.bounded("default"):
        plan = queries.rows(f"explain {failures.IN_RANGES}", asked | ranges, using="default")
    text = "\n".join(line for (line,) in plan)
    assert "Join Filter" not in text, text
    assert "Index Cond: ((id >= " in text, text
