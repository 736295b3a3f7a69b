"""One line for each kind of problem, the worst first."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import control
from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import alerts, counts, throughput, workers
from django_pgqueue.monitoring.overview.figure import Figure
from django_pgqueue.monitoring.overview.throughput import Pulse, Pulses
from django_pgqueue.worker.upkeep import bloat
from tests.support.fixtures.admin import claim, roll_up, send, sign_in, sql

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture(autouse=True)
def slim(monkeypatch: pytest.MonkeyPatch, noon: Clock) -> None:
    monkeypatch.setattr(bloat, "found", lambda _: iter(()))
    sql("delete from pgqueue_worker")


def texts() -> list[str]:
    with overview.bounded("default"):
        return [one.text for one in alerts.of(overview.taken("default"))]


def test_queues_without_a_worker_are_one_line() -> None:
    for number in range(38):
        send(queue=f"q{number:02}")
    send(queue="q07")
    assert texts() == ["38 queues have no worker, q07, q00, q01 and 35 more: 39 messages are ready."]


def test_queues_that_are_not_shown_count_as_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "QUEUES", 5)
    for number in range(8):
        send(queue=f"q{number}")
    assert texts() == ["5+ queues have no worker, q0, q1, q2 and 2+ more: 5+ messages are ready."]
    for number in range(8):
        control.pause(f"q{number}", by=None)
    assert texts() == ["5+ queues are paused, q0, q1, q2 and 2+ more: 5+ messages are ready."]
    control.pause("a", by=None)  # shown, and nothing of it is ready
    assert texts() == ["4+ queues are paused, q0, q1, q2 and 1+ more: 4+ messages are ready."]


def test_queues_that_are_not_shown_may_be_behind_too(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "QUEUES", 5)
    for number in range(8):
        send(queue=f"q{number}")
    noon.advance(dt.timedelta(minutes=40))
    sign_in()
    assert texts()[3:] == ["2+ more queues are behind: 2+ messages are ready."]


def test_a_sum_with_an_estimate_has_three_digits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = {"bulk": Figure(662_000, is_exact=False), "mail": Figure(1_670, is_exact=False), "sms": Figure(7)}
    of = counts.of

    def estimated(*args: Any, **options: Any) -> dict[str, counts.Count]:
        found = of(*args, **options)
        for name, count in found.items():
            count.ready = estimates[name]
        return found

    for name in estimates:
        send(queue=name)
    monkeypatch.setattr(counts, "of", estimated)
    assert texts() == ["3 queues have no worker, bulk, mail and sms: ~664\xa0000 messages are ready."]


@pytest.mark.parametrize(
    ("jobs", "lost", "words"),
    [
        (1, 1, "1 job of t is quarantined: its worker died while it ran. A worker runs it alone."),
        (2, 1, "2 jobs of t are quarantined: their worker died while they ran. A worker runs each of them alone."),
        (1, 3, "1 job of t is quarantined: its workers died while it ran, 3 times. A worker runs it alone."),
    ],
)
def test_one_loss_is_no_number_of_times(jobs: int, lost: int, words: str) -> None:
    sign_in()
    for _ in range(jobs):
        send(task="t")
    sql(f"update pgqueue_message set alone_at = pgqueue_now(), lost = {lost}")
    assert texts() == [words]


def test_workers_that_are_silent_are_one_line(noon: Clock) -> None:
    for name in ("a", "b"):
        sign_in(name)
        noon.advance(dt.timedelta(minutes=2))
    [text] = texts()
    assert text == (
        "2 workers have not renewed their rows: b (2 min) and a (4 min). They died, or cannot reach the database."
    )


def test_workers_that_are_not_read_count_as_more(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_WORKERS", 5)
    for number in range(8):
        sign_in(f"w{number}")
        noon.advance(dt.timedelta(minutes=2))
    [text] = texts()
    assert text == (
        "5+ workers have not renewed their rows: w7 (2 min), w6 (4 min), w5 (6 min) and 2+ more. "
        "They died, or cannot reach the database."
    )


def test_a_backlog_says_for_how_long_it_will_last(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(6):
        send(queue="bulk")
    noon.advance(dt.timedelta(minutes=40))
    sign_in()
    assert texts() == ["6 wait in bulk, the first for 40 min; none has ended in the last ten minutes."]
    pulse = Pulse()
    pulse.ended[-1] = 30
    monkeypatch.setattr(throughput, "taken", lambda *_, **__: Pulses(queues={"bulk": pulse}, step=1))
    assert texts() == ["6 wait in bulk, the first for 40 min; 3.0 end a minute, so the last would wait 2 min more."]


def test_what_does_not_run_stands_before_what_costs_space(noon: Clock) -> None:
    sign_in("gone")
    send(queue="paused")
    control.pause("paused", by=None)
    send(queue="expired")
    claim("expired")
    noon.advance(dt.timedelta(minutes=5))
    send(queue="mail")
    with overview.bounded("default"):
        kinds = [one.kind for one in alerts.of(overview.taken("default"))]
    assert kinds == ["no-worker", "expired", "silent", "paused"]


def test_failures_are_compared_with_those_of_the_day_before(noon: Clock) -> None:
    sign_in()
    for hours in range(1, 25):
        roll_up(noon.at - dt.timedelta(hours=hours), queue="mail", succeeded=1000, failed=48)
        roll_up(noon.at - dt.timedelta(hours=hours), queue="usual", succeeded=10, failed=480)
    for minutes in (10, 5, 0):
        roll_up(noon.at - dt.timedelta(minutes=minutes), hourly=False, queue="mail", failed=20)
        roll_up(noon.at - dt.timedelta(minutes=minutes), hourly=False, queue="usual", failed=40)
        roll_up(noon.at - dt.timedelta(minutes=minutes), hourly=False, queue="new", retried=5)
    assert texts() == [
        "15 attempts of new failed in 15 minutes, and nothing had failed the day before, since 11:50.",
        "60 attempts of mail failed in 15 minutes, 5 times the usual number, since 11:50.",
    ]


def test_a_young_roll_up_knows_nothing_usual(noon: Clock) -> None:
    sign_in()
    roll_up(noon.at, failed=500)
    assert texts() == []
