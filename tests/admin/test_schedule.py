from __future__ import annotations

import datetime as dt
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.models import Message, QueueState, Schedule
from django_pgqueue.tasks import cron, every, registry, task
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.support.fixtures.admin import MESSAGES, send, sql
from tests.support.scheduled.tasks import send as remind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import DjangoAssertNumQueries

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Page, Visitor

SCHEDULES, QUEUES = "/admin/django_pgqueue/schedule/", "/admin/django_pgqueue/queuestate/"
HOUR = dt.timedelta(hours=1)
REMIND = remind.module_path
GIVEN = {
    "name": "remind Ada",
    "task": REMIND,
    "args": '["Ada"]',
    "kwargs": '{"polite": false}',
    "cron": "30 2 * * mon-fri",
    "interval": "",
    "timezone": "Europe/Berlin",
    "catch_up": "skip",
    "queue": "mail",
    "priority": "7",
    "max_attempts": "3",
}


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch, noon: Clock) -> Iterator[Callable[..., None]]:
    """Sets what the project's code declares, and lets a worker find it."""

    def declare(schedule: Any, **options: Any) -> None:
        def make() -> None: ...

        make.__module__, make.__qualname__ = "reports.tasks", "make"
        module = ModuleType("reports.tasks")
        module.make = task(make, schedule=schedule, **options)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "reports.tasks", module)
        registry.forget()
        Scheduler("default").look_if_due(connection)

    yield declare
    registry.forget()


def by_hand(name: str = "by hand", **columns: Any) -> Schedule:
    given = {"next_at": 0, "cron": "0 * * * *", "task": REMIND, "content": {"args": ["Ada"], "kwargs": {}}}
    return Schedule.objects.create(name=name, **given | columns)


def url(name: str, page: str = "change") -> str:
    from django.contrib.admin.utils import quote

    return f"{SCHEDULES}{quote(name)}/{page}/"


def errors(root: Visitor, **changes: str) -> list[str]:
    response = root.client.post(f"{SCHEDULES}add/", GIVEN | changes)
    assert response.status_code == 200, "it was saved"
    assert not Schedule.objects.exists()
    found = response.context["adminform"].form.errors
    return [f"{field}: {error}" for field, listed in found.items() for error in listed]


def act(visitor: Visitor, action: str, *names: str, at: str = SCHEDULES) -> Page:
    return visitor.act(at, action, list(names))


# The list


def test_the_list_shows_each_task_and_its_times(root: Visitor, code: Callable[[Any], None], noon: Clock) -> None:
    code(every(15 * dt.timedelta(minutes=1)))
    by_hand("nightly", cron="30 2 * * mon-fri", timezone="Europe/Berlin", next_at=noon.at + HOUR, queue="mail")
    by_hand("resting", next_at=noon.at, paused_at=noon.at - HOUR)
    by_hand("late", next_at=noon.at - 2 * HOUR)
    by_hand("gone", next_at=noon.at - 2 * HOUR, declared=True)
    by_hand("wrong", cron="whenever", next_at=noon.at + HOUR)
    rows = {row["name"]: row for row in root.open(SCHEDULES).rows}
    assert rows["reports.tasks.make"] == {
        "": "",
        "name": "reports.tasks.make",
        "task": "make reports.tasks",
        "runs": "every 15 minutes",
        "state": "active",
        "next run": "2026-01-09 12:15:00 in 15 min",
        "last run": "-",
        "declared": "in code",
        "queue": "default",
    }
    assert rows["nightly"]["runs"] == "At 02:30 on Monday through Friday (Europe/Berlin) 30 2 * * mon-fri"
    assert (rows["nightly"]["declared"], rows["nightly"]["queue"]) == ("by hand", "mail")
    assert (rows["resting"]["state"], rows["resting"]["next run"]) == ("paused 1 h ago", "-")
    assert rows["late"]["state"] == "late"
    assert rows["gone"]["state"] == "no longer in the code"
    assert rows["wrong"]["runs"] == "invalid"


def test_the_last_run_is_a_link_to_its_message(root: Visitor, noon: Clock) -> None:
    by_hand(next_at=noon.at)
    Scheduler("default").look_if_due(connection)
    [message] = Message.objects.all()
    [row] = root.open(SCHEDULES).cells
    assert row["last run"].text == "2026-01-09 12:00:00"
    link = row["last run"].one("a").attributes["href"]
    assert link == f"{MESSAGES}{message.pk}/change/"
    assert root.open(link).fields["headers"].text == '{ "slot": 1767960000000, "schedule": "by hand" }'


def test_the_list_is_searched_and_narrowed(root: Visitor, noon: Clock) -> None:
    by_hand("one", paused_at=noon.at)
    by_hand("two", task="shop.tasks.other")
    assert root.open(SCHEDULES, q="ONE").column("name") == ["one"]
    assert root.open(SCHEDULES, q="shop.").column("name") == ["two"]
    assert root.open(SCHEDULES, paused="yes").column("name") == ["one"]
    assert root.open(SCHEDULES, declared="code").rows == []


def test_the_number_of_queries_does_not_depend_on_the_schedules(
    root: Visitor, noon: Clock, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(40):
        by_hand(f"schedule {number}", next_at=noon.at)
    Scheduler("default").look_if_due(connection)
    with django_assert_max_num_queries(12):
        assert len(root.open(SCHEDULES).rows) == 40


def test_rows_written_by_hand_break_nothing(root: Visitor, noon: Clock) -> None:
    sql(
        "insert into pgqueue_schedule (name, task, next_at, cron, timezone, paused_at, content, queue) values "
        "('<b>/?&', ' ', %s, '', 'Mars', '9999-12-30Z', '7', ' '), ('x', 'y', %s, '* * * * *', '', null, 'null', 'q')",
        2**63 - 1,
        -(2**63),
    )
    assert root.open(SCHEDULES).column("name") == ["<b>/?&", "x"]
    for name in ("<b>/?&", "x"):
        assert len(root.open(url(name)).root.all("input", name="task")) == 1
    shown = root.open(url("<b>/?&")).root.one("div", class_="field-next_runs")
    assert "'Mars' is not a time zone" in shown.text


@pytest.mark.parametrize("args", ["[" * 3000 + "]" * 3000, "9" * 5000])
def test_arguments_that_python_cannot_read_are_shown_as_they_stand(root: Visitor, args: str) -> None:
    by_hand("deep")
    sql("update pgqueue_schedule set content = jsonb_build_object('args', jsonb_build_array(%s::jsonb))", args)
    shown = root.open(url("deep")).root.one("textarea", name="args").text
    assert args in shown
    assert root.client.post(url("deep"), GIVEN | {"name": "deep", "args": shown}).status_code == 200
    assert root.client.post(url("deep"), GIVEN | {"name": "deep"}).status_code == 302
    assert Schedule.objects.get().content["args"] == ["Ada"]


# The page of one


def test_a_declared_schedule_is_shown_and_not_edited(root: Visitor, code: Callable[[Any], None]) -> None:
    code(cron("30 2 * * *", timezone="Europe/Berlin", name="nightly", catch_up="all"))
    shown = {label: value.text for label, value in root.open(url("nightly")).fields.items()}
    runs = shown.pop("next runs")
    assert runs.startswith("2026-01-10 01:30:00 02:30:00 in Europe/Berlin2026-01-11 01:30:00")
    assert runs.count("in Europe/Berlin") == 5
    assert shown == {
        "name": "nightly",
        "declared": "in code",
        "task": "make reports.tasks",
        "content": '{ "args": [], "kwargs": {} }',
        "queue": "default",
        "priority": "0",
        "max attempts": "-",
        "runs": "At 02:30 every day (Europe/Berlin) 30 2 * * *",
        "timezone": "Europe/Berlin",
        "missed runs": "run each missed run",
        "state": "active",
        "next run": "2026-01-10 01:30:00 in 14 h",
        "last run": "-",
    }
    assert root.client.post(url("nightly"), GIVEN).status_code == 403
    assert root.client.post(url("nightly", "delete"), {"post": "yes"}).status_code == 403


def test_a_schedule_no_longer_in_the_code_can_be_deleted(root: Visitor, noon: Clock) -> None:
    by_hand("gone", declared=True)
    assert root.client.post(url("gone", "delete"), {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()


# Made by hand


def test_a_schedule_is_made_and_fires(root: Visitor, noon: Clock) -> None:
    assert root.client.post(f"{SCHEDULES}add/", GIVEN).status_code == 302
    made = Schedule.objects.get()
    assert (made.name, made.task, made.cron, made.interval_ms) == ("remind Ada", REMIND, "30 2 * * mon-fri", None)
    assert (made.timezone, made.catch_up, made.queue, made.priority) == ("Europe/Berlin", "skip", "mail", 7)
    assert (made.max_attempts, made.declared, made.paused_at) == (3, False, None)
    assert made.content == {"args": ["Ada"], "kwargs": {"polite": False}}
    monday = dt.datetime(2026, 1, 12, 1, 30, tzinfo=dt.UTC)
    assert made.next_at == monday
    noon.move_to(monday)
    Scheduler("default").look_if_due(connection)
    assert Message.objects.get().content == made.content


def test_an_interval_is_given_as_a_duration(root: Visitor, noon: Clock) -> None:
    root.client.post(f"{SCHEDULES}add/", GIVEN | {"cron": "", "interval": "00:05:00", "kwargs": "", "max_attempts": ""})
    made = Schedule.objects.get()
    assert (made.cron, made.interval_ms, made.max_attempts) == (None, 300_000, None)
    assert made.next_at == noon.at + dt.timedelta(minutes=5)
    assert made.content == {"args": ["Ada"], "kwargs": {}}


def test_a_change_keeps_values_that_are_not_in_the_form(root: Visitor, noon: Clock) -> None:
    root.client.post(f"{SCHEDULES}add/", GIVEN)
    Schedule.objects.update(next_at=noon.at - HOUR, paused_at=noon.at)
    page = root.open(url("remind Ada"))
    values = {field.attributes["name"]: field.attributes.get("value") for field in page.root.all("input", type="text")}
    assert values["cron"] == "30 2 * * mon-fri"
    assert "name" not in values

    assert root.client.post(url("remind Ada"), GIVEN | {"args": '["Eve"]'}).status_code == 302
    changed = Schedule.objects.get()
    assert (changed.content["args"], changed.next_at) == (["Eve"], noon.at - HOUR)
    assert changed.paused_at == noon.at

    root.client.post(url("remind Ada"), GIVEN | {"cron": "", "interval": "1:00:00"})
    assert Schedule.objects.get().next_at == noon.at + HOUR, "another rule has another next slot"
    assert root.open(url("remind Ada")).root.one("input", name="interval").attributes["value"] == "01:00:00"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cron": "whenever"}, "cron: 'whenever' is not a cron expression"),
        ({"cron": "0 0 31 2 *"}, "cron: '0 0 31 2 *' is not a cron expression (Bad day-of-month)"),
        ({"cron": "", "interval": ""}, "cron: Give either a cron expression or an interval"),
        ({"interval": "1:00:00"}, "cron: Give either a cron expression or an interval"),
        ({"cron": "", "interval": "-1:00:00"}, "interval: The interval of a schedule must be at least a millisecond"),
        ({"cron": "", "interval": "0"}, "interval: The interval of a schedule must be at least"),
        ({"cron": "", "interval": "soon"}, "interval: Enter a valid duration."),
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not a time zone"),
        ({"task": "nowhere.tasks.send"}, "task: The task 'nowhere.tasks.send' is not registered"),
        ({"task": "os.system"}, "task: 'os.system' is not a task"),
        ({"task": "no path"}, "task: 'no path' is not the dotted path of a task"),
        ({"args": "Ada"}, "args: Enter a valid JSON."),
        ({"args": '{"to": 1}'}, "args: This is not a JSON array."),
        ({"kwargs": "[1]"}, "kwargs: This is not a JSON object."),
        ({"args": "[]"}, "args: send cannot be called with args=[] and kwargs={'polite': False}"),
        ({"kwargs": '{"colour": 1}'}, "args: send cannot be called"),
        ({"args": '["\\u0000"]'}, "args: content['args'][0] contains the character NUL"),
        ({"queue": "q" * 300}, "queue: "),
        ({"priority": "101"}, "priority: Ensure this value is less than or equal to 100."),
        ({"max_attempts": "0"}, "max_attempts: This is a whole number from 1 on"),
        ({"catch_up": "never"}, "catch_up: Select a valid choice."),
        ({"name": ""}, "name: This field is required."),
    ],
    ids=str,
)
def test_a_value_that_no_worker_could_use_is_an_error_of_its_field(
    root: Visitor, noon: Clock, changes: dict[str, str], error: str
) -> None:
    found = errors(root, **changes)
    assert [text for text in found if text.startswith(error)] == found[:1]
    assert len(found) == 1


def test_a_name_can_be_used_once(root: Visitor, noon: Clock) -> None:
    root.client.post(f"{SCHEDULES}add/", GIVEN)
    response = root.client.post(f"{SCHEDULES}add/", GIVEN | {"cron": "* * * * *"})
    assert response.context["adminform"].form.errors["name"] == ["There is a schedule “remind Ada” already."]
    assert Schedule.objects.get().cron == GIVEN["cron"]


# Actions and permissions


def test_pause_resume_and_run_now(root: Visitor, code: Callable[[Any], None], noon: Clock) -> None:
    code(every(HOUR, name="hourly"))
    by_hand("daily", next_at=noon.at + HOUR)
    assert act(root, "pause", "hourly", "daily").said == ["2 schedules (daily, hourly) paused."]
    assert act(root, "pause", "daily").said == ["Not changed: 1 schedule (daily), already paused."]
    noon.advance(5 * HOUR)
    Scheduler("default").look_if_due(connection)
    assert not Message.objects.exists()
    assert act(root, "resume", "hourly").said == ["1 schedule (hourly) resumed with the next run."]
    assert Schedule.objects.get(name="hourly").next_at == noon.at + HOUR

    before = Schedule.objects.order_by("name").values("name", "next_at", "paused_at")
    [said] = act(root, "run_now", "daily").said
    message = Message.objects.get()
    assert said == f"Enqueued 1 message: {message.pk}."
    assert (message.task, message.headers) == (REMIND, {"schedule": "daily"})
    assert list(Schedule.objects.order_by("name").values("name", "next_at", "paused_at")) == list(before)


def test_a_form_that_is_sent_twice_runs_a_schedule_once(root: Visitor, noon: Clock) -> None:
    by_hand("daily")
    seen = root.open(SCHEDULES).root.one("input", name="seen").attributes["value"]
    assert root.act(SCHEDULES, "run_now", ["daily"], seen=seen).said[0].startswith("Enqueued 1 message")
    [said] = root.act(SCHEDULES, "run_now", ["daily"], seen=seen).said
    assert "you or somebody else has acted on daily" in said
    assert Message.objects.count() == 1


def test_run_now_names_the_message_that_holds_the_key_where_the_task_refuses_a_second_one(
    root: Visitor, code: Callable[..., None], noon: Clock
) -> None:
    code(every(HOUR, name="hourly"), unique_key="k", on_conflict="raise")
    Scheduler("default").look_if_due(connection)
    act(root, "run_now", "hourly")
    [said] = act(root, "run_now", "hourly").said
    assert said.startswith("Schedule hourly:")
    assert f"message {Message.objects.get().pk} holds its unique key" in said


def test_a_schedule_that_cannot_be_resumed_shows_the_reason(root: Visitor, noon: Clock) -> None:
    by_hand("wrong", cron="whenever", paused_at=noon.at)
    [said] = act(root, "resume", "wrong").said
    assert said.startswith("Schedule wrong: 'whenever' is not a cron expression")


def test_the_content_of_a_schedule_needs_the_permission_to_see_it(visitor: Callable[..., Visitor], noon: Clock) -> None:
    by_hand()
    assert "declared" in visitor("view_schedule").open(url("by hand")).fields
    changer = visitor("view_schedule", "change_schedule")
    assert changer.open(SCHEDULES).actions == ["pause", "resume"]
    assert changer.open(url("by hand")).fields["content"].text == "You have no permission to see this."
    assert visitor("view_schedule", "run_message").open(SCHEDULES).actions == ["run_now"]


# Queues


def test_queues_are_paused_and_resumed(root: Visitor, noon: Clock) -> None:
    assert root.client.post(f"{QUEUES}add/", {"name": "mail"}).status_code == 302
    page = root.open(QUEUES)
    assert "paused at least once: the overview has all." in page.root.text
    [row] = page.rows
    assert row == {
        "": "", "name": "mail", "state": "paused", "paused at": "2026-01-09 12:00:00", "paused by": "root",
    }  # fmt: skip
    send(queue="mail")
    assert functions.message_dequeue(connection, queues=["mail"], worker="w", tasks=True) == []
    assert act(root, "resume", "mail", at=QUEUES).said == ["Resumed: mail."]
    assert act(root, "resume", "mail", at=QUEUES).said == ["None of them was paused."]
    assert root.open(QUEUES).column("state") == ["not paused"]
    assert act(root, "pause", "mail", at=QUEUES).said == ["Paused: mail."]
    root.client.post(f"{QUEUES}add/", {"name": "mail"})
    assert QueueState.objects.get().paused_by == "root"


def test_a_queue_has_a_page_and_is_not_edited(root: Visitor, noon: Clock) -> None:
    control.pause("a/b", by="Ada")
    shown = {label: value.text for label, value in root.open(f"{QUEUES}a_2Fb/change/").fields.items()}
    assert shown == {"name": "a/b", "state": "paused", "paused at": "2026-01-09 12:00:00", "paused by": "Ada"}
    assert root.client.post(f"{QUEUES}a_2Fb/change/", {"name": "x"}).status_code == 403
