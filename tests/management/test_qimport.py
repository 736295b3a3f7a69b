"""``qimport``: what the other queues have in this database is moved, once, or stays and is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.databases import empty_database
from tests.support.fixtures.sessions import test_database
from tests.support.pages import ROOT

__all__ = ["test_database"]

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.once]

for package in ("django_celery_beat", "django_q", "django_tasks_db", "procrastinate"):
    pytest.importorskip(package, reason=f"{package} is installed beside Django 5.2", exc_type=ImportError)


RUN = "import django; django.setup(); from tests.management.importing.program import main; main()"


@pytest.fixture(scope="module")
def seen(test_database: str) -> Any:
    with empty_database(test_database, "importing") as database:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=ROOT,
            env={
                **os.environ,
                "PGQUEUE_TEST_CONNINFO": database,
                "DJANGO_SETTINGS_MODULE": "tests.management.importing.settings",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SOURCES = ("tasks-db", "procrastinate", "django-q2", "celery-beat")
NOTE = "tests.management.importing.tasks.note"


def left(lines: list[str]) -> dict[str, str]:
    """Why a row has stayed, by the words that name it."""
    return dict(line.split("): ") for line in lines if line.startswith("left "))


@pytest.mark.parametrize("source", SOURCES)
def test_a_dry_run_says_what_would_be_moved_and_changes_nothing(seen: dict[str, Any], source: str) -> None:
    found = seen[source]
    assert found["after dry"] == found["before"]
    *said, last = found["dry"]
    assert [line.replace("would move", "moved") for line in said] == found["said"]
    assert last == "Nothing was changed: this was --dry-run."
    assert (found["heard in dry"], found["heard"]) == (0, len(found["messages"])), "a dry run sends no task_enqueued"


@pytest.mark.parametrize("source", SOURCES)
def test_all_is_moved_or_nothing(seen: dict[str, Any], source: str) -> None:
    found = seen[source]
    assert found["error"] == f"Nothing was moved from {source}: not today."
    assert found["after error"] == found["before"]
    assert found["after"] != found["before"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_login_without_the_permission_is_told_so_in_a_sentence(seen: dict[str, Any], source: str) -> None:
    assert seen[source]["forbidden"].startswith(f"Nothing was moved from {source}: permission denied for table ")


@pytest.mark.parametrize("source", SOURCES)
def test_a_job_is_in_one_of_both_queues_and_moves_once(seen: dict[str, Any], source: str) -> None:
    found = seen[source]
    assert sum(found["after"]) == sum(found["before"])
    assert found["after again"] == found["after"]
    assert found["again"] == [line for line in found["said"] if line.startswith("left ")]


@pytest.mark.parametrize("source", SOURCES)
def test_a_database_without_the_other_queue_is_refused(seen: dict[str, Any], source: str) -> None:
    assert seen["refused"][source].startswith("CommandError: The database 'default' has no table ")


def test_what_another_worker_has_locked_is_not_taken(seen: dict[str, Any]) -> None:
    assert seen["locked"][0] == f"would move 2 jobs of '{NOTE}'"
    assert f"would move 3 jobs of '{NOTE}'" in seen["tasks-db"]["dry"][0] or seen["tasks-db"]["before"][0] == 6


@pytest.mark.parametrize("source", ["tasks-db", "procrastinate"])
def test_a_job_that_a_worker_of_the_other_queue_runs_stays_with_it(seen: dict[str, Any], source: str) -> None:
    said = ["moved 4 jobs of 'tests.management.importing.tasks.tell'"]
    assert seen["beside"][source] == {"said": said, "code": 0, "runs": [*range(5)]}


def test_a_job_that_a_cluster_of_django_q2_has_taken_stays_with_it(seen: dict[str, Any]) -> None:
    taken, *left = seen["taken"]
    assert left == [taken]


def test_what_the_page_shows_of_django_q2_runs_with_it(seen: dict[str, Any]) -> None:
    assert seen["page"] == 8, "two jobs, three of the iteration, the first one of the chain, and two schedules"


def test_jobs_of_django_tasks_db_keep_their_call_queue_priority_and_time(seen: dict[str, Any]) -> None:
    found = seen["tasks-db"]
    call = {"args": [1], "kwargs": {"name": "Ada"}}
    assert found["messages"] == [
        [NOTE, call, "default", 0, False], [NOTE, call, "mail", 7, False], [NOTE, call, "default", 0, True],
    ]  # fmt: skip
    assert found["runs"] == ["SUCCESSFUL"] * 2
    assert found["calls"] == [[[1], {"name": "Ada"}]] * 2
    reasons = " ".join(found["said"])
    assert "Queue 'post' is not valid for backend 'default'" in reasons
    assert "its backend 'old' has no queue in the database 'default'" in reasons


def test_jobs_of_procrastinate_keep_their_call_queue_priority_and_time(seen: dict[str, Any]) -> None:
    found = seen["procrastinate"]
    assert found["messages"] == [
        [NOTE, {"args": [], "kwargs": {"name": "Ada"}}, "default", 0, False],
        [NOTE, {"args": [], "kwargs": {"n": 2}}, "mail", 7, True],
    ]
    reasons = left(found["said"])
    assert len(reasons) == 7, (
        "a lock, a queueing_lock, a priority of 1000, an unknown task, wrong arguments, deep ones, a key that raises"
    )
    assert any("it cannot be read (RecursionError: " in why for why in reasons.values())
    assert "KeyError: 'number'" in reasons.values()
    assert any("it has a lock" in why for why in reasons.values())
    assert any("it has a queueing_lock" in why for why in reasons.values())
    assert any("cannot be called with these arguments" in why for why in reasons.values())


def test_jobs_and_schedules_of_django_q2(seen: dict[str, Any]) -> None:
    found = seen["django-q2"]
    assert [message[1]["args"] for message in found["messages"]] == [[1], [2], [5]]
    assert [message[4] for message in found["messages"]] == [False, False, True], "the schedule that runs once is a job"
    assert [(name, cron, interval, first) for name, cron, interval, *_, first in found["schedules"]] == [
        ("cron", "30 2 * * 1-5", None, ""),
        ("half hour", None, 1_800_000, ""),
        ("hourly", "5 * * * *", None, "2040-02-03T04:05:00+00:00"),
        ("quarterly", "5 5 3 2,5,8,11 *", None, "2040-02-03T04:05:00+00:00"),
    ]
    partial = "'functools.partial' is not a task: functools has a type of that name. Declare it with @task."
    assert {why.split(" (")[0] for why in left(found["said"]).values()} >= {
        partial,
        "it cannot be read", "its arguments are not a call", "every two weeks is no cron expression",
        "it ends after 3 runs", "it has hook=", "not every month has a day 31",
    }  # fmt: skip


def test_schedules_of_django_celery_beat(seen: dict[str, Any]) -> None:
    found = seen["celery-beat"]
    call = {"args": ["x"], "kwargs": {"name": "Ada"}}
    nightly = ["nightly", "30 2 * * mon-fri", None, "Europe/Berlin", call, "mail", ""]
    often: list[Any] = [
        "often", None, 300_000, "UTC", {"args": [], "kwargs": {}}, "default", "2040-02-03T04:05:00+00:00",
    ]  # fmt: skip
    assert found["schedules"][1:] == [nightly, often]
    assert [message[1]["args"] for message in found["messages"]] == [[9]], "what runs once at a time is a job"
    assert set(left(found["said"]).values()) >= {
        "it has priority",
        "its arguments are not a call",
        "it names days of the month and of the week: Celery runs it if both fit, and cron if one does",
        "there is a schedule 'hourly' already",
    }
