"""``manage.py qworkers`` lists the workers and gives orders to them."""

from __future__ import annotations

import datetime as dt
import io
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.management.commands import qworkers
from django_pgqueue.models import Worker
from tests.support.fixtures.admin import WORKER, claim, send, sign_in, sql

if TYPE_CHECKING:
    from django_pgqueue.testing import Clock

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def said(*arguments: str) -> list[str]:
    out = io.StringIO()
    call_command("qworkers", *arguments, stdout=out)
    return out.getvalue().splitlines()


@pytest.fixture(autouse=True)
def alone(noon: Clock) -> None:
    sql("delete from pgqueue_worker")


def test_workers_are_listed(noon: Clock) -> None:
    assert said() == ["There is no worker."]
    sign_in("gone")
    noon.advance(dt.timedelta(minutes=3))
    sign_in(slots=3, queues=["default"], version="7")
    send()
    claim()
    assert said() == [
        "Worker    State     Slots in use  Version  Queues   Seen       Ordered by",
        "gone      not seen  0 of 4        -        all      3 min ago  -",
        "worker-1  busy      1 of 3        7        default  0 ms ago   -",
    ]


def test_of_many_workers_those_that_were_seen_last_are_listed(noon: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qworkers, "MAX_WORKERS", 2)
    for name in ("a", "c", "b"):
        sign_in(name)
        noon.advance(dt.timedelta(minutes=3))
    lines = said()
    assert [line.split()[0] for line in lines[1:3]] == ["b", "c"]
    assert lines[3:] == ["There are more workers than these, which were seen longer ago."]


def test_an_order_is_given_and_shown() -> None:
    sign_in()
    assert said("--pause", WORKER, "--by", "Ada") == ["Ordered: pause, worker-1."]
    assert "paused" in said()[1]
    assert said()[1].endswith("Ada")
    said("--slots", "9", WORKER)
    assert Worker.objects.get(pk=WORKER).ordered_slots == 9


def test_an_order_to_a_worker_that_is_gone_says_so() -> None:
    with pytest.raises(CommandError, match="No such worker lives, so nothing was ordered: gone"):
        said("--stop", "gone")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["worker-1"], "Say what the workers shall do"),
        (["--pause"], "Name the workers that shall follow --pause"),
        (["--slots", "0", "worker-1"], "A worker cannot have 0 slots: give it a whole number from 1 to 1,000."),
    ],
)
def test_an_order_that_says_too_little_is_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        said(*arguments)
