"""Projects that are configured otherwise: every page of the admin, and what people do there."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.urls import path
from django.utils import timezone

from django_pgqueue import control, functions, testing
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.durable import DurableContext, decide
from django_pgqueue.models import Edit, Message, QueueState
from django_pgqueue.monitoring.overview.coverage import Service
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.queue import Queue
from django_pgqueue.tasks import task
from django_pgqueue.tasks.schedule import Rule
from django_pgqueue.values.times import to_epoch_ms
from tests.promises.security.website import furnish, keys, pages
from tests.support import tasks
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, NOON, claim, fail, roll_up, send, sign_in, visitor_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.db.models import Model

    from tests.support.admin_page import Element, Visitor

pytestmark = pytest.mark.django_db

SETTINGS: dict[str, dict[str, Any]] = {
    "naive times": {"USE_TZ": False, "TIME_ZONE": "Asia/Kathmandu"},
    "grouped numbers, a replica": {
        "USE_THOUSAND_SEPARATOR": True,
        "LANGUAGE_CODE": "de",
        "DATABASE_ROUTERS": [f"{__name__}.Replica"],
    },
    "hashed files, hidden tokens, no translations": {
        "USE_I18N": False,
        "CSRF_COOKIE_HTTPONLY": True,
        "CSRF_USE_SESSIONS": True,
        "STORAGES": {
            "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
            "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
        },
    },
}
FIRST_ID = 1_234_567
"""An id that has separators, where numbers are grouped."""
KATHMANDU = dt.timezone(dt.timedelta(hours=5, minutes=45))


class Replica:
    """Router of a project that reads from another database: one that is behind, and here is not there at all."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "replica" if model._meta.app_label == "django_pgqueue" else None


@task(durable=True)
def asks(context: DurableContext) -> str:
    return context.approval("ship-abroad").by


@pytest.fixture(params=SETTINGS)
def configured(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with override_settings(STATIC_ROOT=tmp_path, **SETTINGS[request.param]):
        if "STORAGES" in SETTINGS[request.param]:
            call_command("collectstatic", verbosity=0, interactive=False)
        yield request.param


@pytest.fixture
def naive() -> Iterator[None]:
    with override_settings(**SETTINGS["naive times"]):
        yield


@pytest.mark.slow
def test_every_page_opens_and_lists_its_rows(configured: str, root: Visitor) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select setval(pg_get_serial_sequence('pgqueue_message', 'id'), %s)", (FIRST_ID,))
    furnish()
    control.edit("cancel", control.Filter(queue="default"))
    roll_up(NOON, succeeded=7)
    roll_up(NOON + dt.timedelta(hours=3), failed=2)
    with override_settings(DATABASE_ROUTERS=[]):
        found = {model: rows[0] for model, rows in keys().items() if rows}
    opened = set()
    for route, model in pages():
        url = route.replace("<int:message_id>", "1").replace("{key}", found.get(model, "1"))
        answer = root.client.get(url, follow=True)
        assert answer.status_code in {200, 403, 405}, url
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            strays = [element.attributes for element in Page(answer).root.all() if is_inline(element)]
            assert not strays, (url, "a content security policy would forbid it")
        opened.add(model)
    assert {"message", "attempt", "schedule", "worker", "edit", "reporthour", "overview"} <= opened


def test_a_message_is_postponed_changed_run_and_cancelled(configured: str, root: Visitor) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select setval(pg_get_serial_sequence('pgqueue_message', 'id'), %s)", (FIRST_ID,))
    pk = send()
    [before] = Message.objects.using("default").filter(pk=pk).values_list("dequeue_at", flat=True)
    root.confirm(root.act(MESSAGES, "postpone", [pk]), delay="1 day")
    postponed = Message.objects.using("default").get(pk=pk).dequeue_at
    assert dt.timedelta(hours=23) < postponed - before < dt.timedelta(hours=25)
    page = root.open(f"{MESSAGES}{pk}/change/")
    root.client.post(f"{MESSAGES}{pk}/change/", {**page.form, "priority": "7"})
    changed = Message.objects.using("default").get(pk=pk)
    assert (changed.priority, changed.dequeue_at) == (7, postponed)
    listed = root.client.get(MESSAGES, {"dequeue_at__range__lte_0": "2100-01-01"}).content.decode()
    assert f'value="{pk}"' in listed, "the box of the row"
    root.act(MESSAGES, "run_now", [pk])
    assert Message.objects.using("default").get(pk=pk).dequeue_at < postponed
    asked = root.client.post(
        f"{MESSAGES}edit/?dequeue_at__range__lte_0=2100-01-01",
        {"confirmed": "1", "action": "postpone", "delay": "1 week"},
    )
    assert asked.status_code == 302
    assert Edit.objects.using("default").get().filter == {"run_at_until": to_epoch_ms(timezone.make_aware(MIDNIGHT))}
    root.confirm(root.act(MESSAGES, "cancel", [pk]))
    assert not Message.objects.using("default").exists()


def is_inline(element: Element) -> bool:
    """Whether it is a script, a style or a handler that stands in the page itself."""
    if any(name.startswith("on") or name == "style" for name in element.attributes) or element.tag == "style":
        return True
    kind = element.attributes.get("type", "text/javascript")
    return element.tag == "script" and "src" not in element.attributes and kind == "text/javascript"


MIDNIGHT = dt.datetime(2100, 1, 1, 23, 59, 59, 999_999)  # noqa: DTZ001 -- in the time zone of the project


def test_programs_get_times_with_a_zone(naive: None, root: Visitor) -> None:
    send()
    fail(claim()[0])
    [row] = json.loads(root.client.get(ATTEMPTS, {"download": "json"}).content)["rows"]
    assert dt.datetime.fromisoformat(row["finished_at"]).utcoffset() == KATHMANDU.utcoffset(None)
    out = io.StringIO()
    call_command("qstatus", "--json", stdout=out)
    assert dt.datetime.fromisoformat(json.loads(out.getvalue())["at"]).tzinfo is not None


def test_workers_are_alive_in_the_hour_that_a_clock_shows_twice(root: Visitor) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        first = dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC)  # 02:30, and once more an hour later
        for moment in (first, first + dt.timedelta(minutes=35)):
            with testing.clock(moment):
                sign_in("w")
                now = functions.now(connection)
                assert now.tzinfo is None
                assert Service.at(now, using="default").workers == [(None, [])]
                assert "idle" in root.open("/admin/django_pgqueue/worker/").column("state")[0]
        with testing.clock(first + dt.timedelta(minutes=29)):
            sign_in("w")
        with testing.clock(first + dt.timedelta(minutes=35)):
            assert "not seen for 6 min" in root.open("/admin/django_pgqueue/worker/").column("state")[0]
            assert workers(functions.now(connection), using="default").silent[0].silence.seconds == 360


def test_naive_times_are_in_the_time_zone_of_the_project(naive: None) -> None:
    noon = dt.datetime(2100, 6, 1, 12)  # noqa: DTZ001
    due_ms = to_epoch_ms(noon.replace(tzinfo=KATHMANDU))
    raw = Queue("warehouse").send({}, run_after=noon)
    assert Message.objects.get(pk=raw).dequeue_at.epoch_ms == due_ms
    what = control.Filter(run_at_from=noon)
    edit = control.edit("postpone", what, run_at=noon)
    asked = Edit.objects.get(pk=edit)
    assert (asked.filter, asked.parameters) == ({"run_at_from": due_ms}, {"run_at": due_ms})
    rule = Rule(interval_ms=3_600_000)
    assert rule.first_after(noon) == noon.replace(tzinfo=KATHMANDU) + dt.timedelta(minutes=45)


@task(durable=True)
def asks_when(context: DurableContext) -> bool:
    return context.approval("ship-abroad").at <= timezone.now()


def test_the_time_of_a_decision_is_as_those_of_django(naive: None, root: Visitor) -> None:
    asked = asks_when.enqueue()
    testing.drain()
    decide(asked, "ship-abroad", approved=True, user=User.objects.get())
    [ended] = testing.drain()
    assert ended.errors == []
    assert ended.return_value is True


def test_naive_times_know_of_no_activated_time_zone(naive: None, root: Visitor) -> None:
    """A middleware activates that of the user: without USE_TZ none of Django's own times follows it."""
    with timezone.override("America/New_York"):
        test_naive_times_are_in_the_time_zone_of_the_project(naive)
        later = tasks.echo.using(run_after=timezone.now() + dt.timedelta(hours=1)).enqueue()
        [due] = Message.objects.filter(pk=later.id).values_list("dequeue_at", flat=True)
        assert 3500 < due.timestamp() - dt.datetime.now(dt.UTC).timestamp() <= 3601
        page = root.open_with_all_columns(MESSAGES)
        assert "time zone Asia/Kathmandu" in page.root.text
        assert f"{due.astimezone(KATHMANDU):%Y-%m-%d %H:%M:%S}" in page.root.text
        out = io.StringIO()
        call_command("qstatus", stdout=out)
        assert "(Asia/Kathmandu)" in out.getvalue()


def test_a_naive_time_of_expiry_counts(naive: None) -> None:
    gone = tasks.echo.using(expires=timezone.now() + dt.timedelta(minutes=5)).enqueue()
    [message] = Message.objects.all()
    assert (message.headers or {})["expires_at"].endswith("+05:45")
    with testing.clock() as clock:
        clock.advance(dt.timedelta(minutes=6))
        testing.drain()
    gone.refresh()
    assert gone.status is TaskResultStatus.FAILED


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> User:
    """A user as of a project's own model, whose name to log in with is no text."""
    monkeypatch.setattr(User, "USERNAME_FIELD", "id")
    return User.objects.create_superuser("root")


def test_the_name_of_a_user_need_not_be_a_text(numbered: User) -> None:
    visitor = visitor_of(numbered)
    visitor.client.post("/admin/django_pgqueue/queuestate/add/", {"name": "mail"})
    assert QueueState.objects.get().paused_by == str(numbered.pk)
    asked = visitor.client.post(f"{MESSAGES}edit/", {"confirmed": "1", "action": "cancel"})
    assert asked.status_code == 302
    assert Edit.objects.get().asked_by == str(numbered.pk)
    result = asks.enqueue()
    testing.drain()
    assert decide(result, "ship-abroad", approved=True, user=numbered) == "decided"
    testing.drain()
    result.refresh()
    assert result.return_value == str(numbered.pk)


OPERATIONS = admin.AdminSite(name="operations")
for _model, _page in list(admin.site._registry.items()):
    if _model._meta.app_label == "django_pgqueue":
        OPERATIONS.register(_model, type(_page))
urlpatterns = [path("operations/", OPERATIONS.urls), path("admin/", admin.AdminSite().urls)]


@pytest.mark.parametrize("left_out", OPERATIONS._registry, ids=lambda model: model._meta.model_name)
def test_a_site_without_one_of_the_pages_links_to_the_others(
    root: Visitor, settings: Any, left_out: type[Model]
) -> None:
    furnish()
    site = admin.AdminSite(name="others")
    for model, page in OPERATIONS._registry.items():
        if model is not left_out:
            site.register(model, type(page))
    settings.ROOT_URLCONF = (path("others/", site.urls),)
    found = {model: rows[0] for model, rows in keys().items() if rows}
    for model in site._registry:
        lists = f"/others/django_pgqueue/{model._meta.model_name}/"
        row = found.get(str(model._meta.model_name))
        for url in [lists, *([f"{lists}{row}/change/", f"{lists}{row}/history/"] if row else [])]:
            answer = root.client.get(url, follow=True)
            assert answer.status_code in {200, 403}, url
            links = [link for link in Page(answer).root.all("a") if "hidden" not in link.attributes]
            assert not [link.text for link in links if not link.attributes["href"]], url


@pytest.mark.slow
@pytest.mark.urls(__name__)
def test_an_admin_site_of_its_own_keeps_its_visitors(root: Visitor) -> None:
    """Beside another site, which does not have the pages of the queue."""
    furnish()
    found = {model: rows[0] for model, rows in keys().items() if rows}
    for model in OPERATIONS._registry:
        name = str(model._meta.model_name)
        lists = f"/operations/django_pgqueue/{name}/"
        for url in [lists, *([f"{lists}{found[name]}/change/"] if name in found else [])]:
            answer = root.client.get(url, follow=True)
            assert answer.status_code == 200, url
            links = [link.attributes.get("href", "") for link in Page(answer).root.all("a")]
            assert not [link for link in links if link.startswith("/admin/")], url
    [pk, *_] = Message.objects.filter(worker__isnull=True).values_list("pk", flat=True)
    asked = root.act("/operations/django_pgqueue/message/", "cancel", [pk])
    assert root.confirm(asked).said == ["1 message cancelled."]
