"""``/metrics`` of a site: who may read it, what it says, and what it costs."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from django_pgqueue import control, functions, testing
from django_pgqueue.metrics import queue, views
from django_pgqueue.models import ReportHour
from django_pgqueue.queue import Queue
from tests.support.address import conninfo
from tests.support.monitoring import OPENMETRICS, samples
from tests.support.site.tasks import nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client
    from pytest_django import DjangoAssertNumQueries, Settings

URL = "/queue/metrics"
TOKEN = "a token of some length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def site(settings: Settings) -> None:
    views.KEPT.forget()
    settings.ROOT_URLCONF = "tests.metrics.urls"
    settings.TASKS = tasks(METRICS_TOKEN=TOKEN)


def tasks(**options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": [], "OPTIONS": options}}


def read(client: Client) -> dict[tuple[str, ...], float]:
    answer = client.get(URL, headers=BEARER)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=")
    return samples(answer.content.decode())


def report_failures(hours_ago: int, failed: int) -> None:
    newest = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    row: dict[str, Any] = dict.fromkeys(field.name for field in ReportHour._meta.fields if field.name != "id")
    counts = {name: 0 for name in row if name not in {"sla_misses", "channel", "hour", "queue", "task"}}
    row |= counts | {"wait_histogram": {}, "run_histogram": {}}
    row |= {"hour": newest - hours_ago * HOUR, "queue": "mail", "task": "shop.tasks.send", "failed": failed}
    ReportHour.objects.create(**row)


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer a token", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"]
)
@pytest.mark.django_db
def test_an_anonymous_request_is_refused(client: Client, given: str) -> None:
    answer = client.get(URL, headers={"Authorization": given} if given else {})
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="pgqueue metrics"')
    assert b"pgqueue_" not in answer.content


@pytest.mark.django_db
def test_without_a_token_in_the_settings_any_token_is_refused(client: Client, settings: Settings) -> None:
    for token in (None, ""):
        settings.TASKS = tasks(METRICS_TOKEN=token)
        assert [client.get(URL, headers={"Authorization": f"Bearer {word}"}).status_code for word in ("", "None")] == [
            401
        ] * 2


@pytest.mark.parametrize(("staff", "permission", "status"), [(True, True, 200), (True, False, 401), (False, True, 401)])
@pytest.mark.django_db
def test_the_overview_permission_allows_reading_the_metrics(
    client: Client, *, staff: bool, permission: bool, status: int
) -> None:
    user = User.objects.create_user("ada", is_staff=staff)
    if permission:
        user.user_permissions.add(Permission.objects.get(codename="view_overview"))
    client.force_login(user)
    assert client.get(URL).status_code == status


@pytest.mark.django_db
def test_the_metrics_view_accepts_only_get(client: Client) -> None:
    assert client.post(URL, headers=BEARER).status_code == 405
    assert client.get(URL, headers=BEARER)["Cache-Control"] == "max-age=0, no-cache, no-store, must-revalidate, private"


@pytest.mark.django_db
def test_the_metrics_match_the_overview(client: Client) -> None:
    for _ in range(3):
        nothing.using(queue_name="mail").enqueue()
    nothing.using(queue_name="mail", run_after=HOUR).enqueue()
    Queue("yard").send({})
    Queue("yard").send({})
    assert Queue("yard").receive() is not None
    given_up = Queue("yard").receive()
    assert given_up is not None
    given_up.fail("no")
    control.pause("mail", by="Ada")
    functions.worker_seen(
        connection, worker="w", queues=["other"], exclude_queues=(), hostname="h", pid=1, slots=4, asleep_ms=None
    )
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_lake_move('one', '/data/jobs', 5)")
    for hours, failed in ((1, 31), (2, 99), (1 + 168, 10), (1 + 336, 9)):
        report_failures(hours, failed)
    found = read(client)
    assert found["pgqueue_unusual_failures", "default", "mail", "shop.tasks.send"] == 31
    assert 0 <= found["pgqueue_lake_lag_seconds", "default", "/data/jobs"] < 60
    assert found["pgqueue_lake_missed_attempts", "default", "/data/jobs"] == 0
    assert found["pgqueue_up", "default"] == 1
    assert found["pgqueue_messages", "default", "mail", "ready"] == 3
    assert found["pgqueue_messages", "default", "mail", "scheduled"] == 1
    assert found["pgqueue_messages", "default", "yard", "running"] == 1
    assert found["pgqueue_failed_last_hour", "default", "yard"] == 1
    assert found["pgqueue_paused", "default", "mail"] == found["pgqueue_unserved", "default", "mail"] == 1
    assert found["pgqueue_paused", "default", "yard"] == found["pgqueue_estimated", "default", "mail"] == 0
    assert 0 <= found["pgqueue_oldest_ready_seconds", "default", "mail"] < 60
    assert found["pgqueue_attempts_per_minute", "default", "yard"] == pytest.approx(0.1)
    assert found["pgqueue_workers", "default", "idle"] == 1
    assert found["pgqueue_workers", "default", "busy"] == 0
    assert found["pgqueue_slots", "default"] == 4


def park(task: str, *, queue: str = "mail") -> None:
    functions.enqueue(connection, functions.NewMessage(content="{}", task=task, queue=queue))
    held = functions.message_dequeue(connection, queues=[queue], limit=1, worker="w", tasks=True)
    functions.message_park(connection, [(message, "no such task") for message in held], worker="w")


@pytest.mark.django_db
def test_the_oldest_parked_message_counts_beside_many_newer_ones(client: Client) -> None:
    with testing.clock() as clock:
        park("shop.tasks.first")
        clock.advance(HOUR)
        for n in range(11):
            park(f"shop.tasks.t{n}", queue="other")
        found = read(client)
    assert found["pgqueue_oldest_parked_seconds", "default", "mail"] == 3600
    assert found["pgqueue_oldest_parked_seconds", "default", "other"] == 0


@pytest.mark.django_db
def test_parked_messages_are_counted(client: Client) -> None:
    nothing.enqueue()
    with testing.clock() as clock:
        for task in ("shop.tasks.one", "shop.tasks.one", "shop.tasks.two"):
            park(task)
            clock.advance(HOUR)
        found = read(client)
    assert found["pgqueue_parked_messages", "default", "mail"] == 3
    assert found["pgqueue_oldest_parked_seconds", "default", "mail"] == 3 * 3600
    assert found["pgqueue_parked_messages", "default", "default"] == 0
    assert found["pgqueue_oldest_parked_seconds", "default", "default"] == 0
    for state in ("ready", "scheduled", "after_others", "running", "expired"):
        assert found.get(("pgqueue_messages", "default", "mail", state), 0) == 0


@pytest.mark.django_db
def test_openmetrics_is_sent_to_clients_that_accept_it(client: Client) -> None:
    answer = client.get(URL, headers={**BEARER, "Accept": OPENMETRICS})
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    assert samples(answer.content.decode(), openmetrics=True)["pgqueue_up", "default"] == 1


@pytest.mark.django_db
def test_the_database_is_queried_once_per_interval(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(client)
    nothing.enqueue()
    with django_assert_num_queries(0):
        assert read(client) == before
    monkeypatch.setattr(views.KEPT, "until", 0.0)
    assert read(client)["pgqueue_messages", "default", "default", "ready"] == 1


@pytest.mark.django_db
def test_only_what_failed_in_the_last_hour_is_counted(client: Client) -> None:
    Queue("yard").send({})
    message = Queue("yard").receive()
    assert message is not None
    message.fail("no")
    with connection.cursor() as cursor:
        cursor.execute("update pgqueue_attempt set finished_at = now() - interval '61 minutes'")
    found = read(client)
    assert found.get(("pgqueue_failed_last_hour", "default", "yard"), 0) == 0


@pytest.mark.django_db
def test_a_queue_that_cannot_be_read_is_down(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("alter table pgqueue_queue rename to elsewhere")
    found = read(client)
    assert found["pgqueue_up", "default"] == 0
    assert {name for name, *_ in found} == {"pgqueue_up", "pgqueue_look_seconds"}


@pytest.mark.django_db(transaction=True)
def test_a_busy_database_ends_the_request_soon(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "STATEMENT_TIMEOUT", "50ms")
    with psycopg.connect(conninfo()) as other:
        other.execute("lock table pgqueue_message in access exclusive mode")
        assert read(client)["pgqueue_up", "default"] == 0
    monkeypatch.setattr(queue, "STATEMENT_TIMEOUT", "30s")
    views.KEPT.forget()
    assert read(client)["pgqueue_up", "default"] == 1


def test_every_metric_is_on_the_page(
    client: Client, transactional_db: None, page_of_metrics: Callable[[], set[str]]
) -> None:
    nothing.enqueue()
    Queue("yard").send({})
    message = Queue("yard").receive()
    assert message is not None
    message.complete()
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into pgqueue_message (queue, task, content, attempt, suspended_attempt, dequeue_at)"
            " values ('default', 't', '{}', 1, 1, 2 ^ 50)"
        )
        cursor.execute("select pgqueue_lake_move('one', '/data/jobs', 5)")
        report_failures(1, 10)
        report_failures(1 + 168, 0)
        try:
            assert {name for name, *_ in read(client)} == page_of_metrics()
        finally:
            cursor.execute("select pgqueue_lake_forget('one')")  # no model: no test empties its table


@pytest.fixture
def page_of_metrics() -> Callable[[], set[str]]:
    import re

    from tests.support.pages import section

    return lambda: set(re.findall(r"^\| `(pgqueue_\w+)`", section("monitoring", "Metrics of the queue"), re.MULTILINE))
