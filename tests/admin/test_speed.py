"""Every page answers within a second beside a million scheduled messages, 200,000 ready ones and two million finished.

PGQUEUE_LONG_FORM=1 python3 tests tests/admin/test_speed.py -s
"""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.admin.cost import DAYS, partitions
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import DjangoDbBlocker

    from tests.support.admin_page import Visitor

SCHEDULED, READY, FINISHED = 1_000_000, 200_000, 2_000_000
LIMIT = 1.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_200),
    pytest.mark.django_db,
    pytest.mark.skipif("PGQUEUE_LONG_FORM" not in os.environ, reason="started by hand: PGQUEUE_LONG_FORM=1"),
]

FILTERS = {
    MESSAGES: ["", "status=scheduled", "status=ready", "status=running", "queue=mail", "task=shop.tasks.t1", "q=t1"],
    ATTEMPTS: [
        "",
        "status__exact=failed",
        "status__exact=succeeded",
        "error_class=ValueError",
        "queue=mail",
        "wait__range__gte=10",
        "duration__range__gte=1",
        "finished_at__range__gte_0=2020-01-01",
        "q=77",
    ],
    f"{ATTEMPTS}errors/": ["", "period=7d"],
    f"{ATTEMPTS}again/": ["", "status__exact=failed", "queue=mail"],
    "/admin/django_pgqueue/overview/": [""],
    "/admin/django_pgqueue/overview/live/": [""],
    WORKERS: [""],
    "/admin/django_pgqueue/schedule/": [""],
    "/admin/django_pgqueue/queuestate/": [""],
}


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        sql("truncate pgqueue_message, pgqueue_attempt, pgqueue_worker, pgqueue_channel, pgqueue_lane, pgqueue_arrival")
        partitions()
        fill()
        sign_in()
        yield
        sql("truncate pgqueue_message, pgqueue_attempt, pgqueue_worker, pgqueue_channel, pgqueue_lane, pgqueue_arrival")
        for days in range(1, DAYS + 1):
            sql(f"drop table pgqueue_attempt_{dt.datetime.now(dt.UTC) - dt.timedelta(days=days):%Y%m%d}")


def fill() -> None:
    """As a site leaves it that has worked for four days, and whose statistics are those of an empty table."""
    sql(
        """
        insert into pgqueue_message (dequeue_at, priority, queue, channel, task, content, created_at)
        select pgqueue_now() + case when i <= %s then -i else i end * 1000, (i %% 3) * 10,
               (array['default', 'mail', 'reports', 'slow', 'night'])[1 + i %% 5],
               case when i %% 50 = 0 then 'tenant-' || i %% 700 end,
               case when i %% 20 <> 0 then 'shop.tasks.t' || i %% 9 end,
               '{"args": [1, 2, 3], "kwargs": {"some": "thing"}}', now() - i * interval '1 millisecond'
        from generate_series(1, %s) i
        """,
        READY,
        READY + SCHEDULED,
    )
    sql(
        """
        insert into pgqueue_attempt (
            message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority, final, status, queue, task,
            worker, error_class, error_message, traceback, content)
        select i, 0, at - i %% 60 * interval '1 s', at, at + i %% 100 * interval '20 ms', 1, 0, true,
               case when i %% 200 = 7 then 'failed' else 'succeeded' end,
               (array['default', 'mail', 'reports', 'slow', 'night'])[1 + i %% 5], 'shop.tasks.t' || i %% 9, 'w',
               case when i %% 200 = 7 then 'builtins.' || (array['ValueError', 'KeyError'])[1 + i %% 2] end,
               case when i %% 200 = 7 then 'number ' || i end,
               case when i %% 200 = 7 then repeat('  File "/srv/lib/python/thing.py", line 12, in there' || chr(10), 20)
                   || '  File "/srv/shop/tasks.py", line ' || i %% 30 || ', in send' || chr(10) || 'ValueError: no' end,
               '{"args": [1, 2, 3], "kwargs": {"some": "thing"}}'
        from (
            select i, now() - interval '4 days' + i * (interval '4 days' / %s) as at from generate_series(1, %s) i
        ) as times
        """,
        FINISHED,
        FINISHED,
    )


def pages() -> list[str]:
    [[ready]] = sql(
        "select id from pgqueue_message where queue = 'default' and task is not null and channel is null "
        "and dequeue_at <= pgqueue_now() order by priority, dequeue_at desc limit 1"
    )
    [[lane]] = sql("select max(id) from pgqueue_message where channel is not null")
    [[failed]] = sql("select max(id) from pgqueue_attempt where status = 'failed'")
    own = [f"{MESSAGES}{ready}/change/", f"{MESSAGES}{lane}/change/", f"{ATTEMPTS}{failed}/change/"]
    return [*own, *(f"{url}?{query}" for url, queries in FILTERS.items() for query in queries)]


@pytest.mark.usefixtures("filled")
def test_every_page_answers_in_time(root: Visitor) -> None:
    took = {url: fastest(root, url) for url in pages()}
    for url, seconds in sorted(took.items(), key=lambda item: -item[1]):
        print(f"{seconds * 1000:7.0f} ms  {url}")
    assert max(took.values()) < LIMIT, {url: seconds for url, seconds in took.items() if seconds >= LIMIT}


def fastest(root: Visitor, url: str) -> float:
    """Of five: other programs on the machine must not decide."""
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        answer = root.client.get(url)
        seconds.append(time.perf_counter() - begun)
        assert answer.status_code == 200, (url, answer.status_code)
        if seconds[-1] < LIMIT / 4:
            break
    return min(seconds)
