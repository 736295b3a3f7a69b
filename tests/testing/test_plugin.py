"""The pytest plugin, as a project that has installed django_pgqueue finds it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.support.site.shelf import note

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """
from tests.settings import *
INSTALLED_APPS = ["django_pgqueue", *(["django_tasks"] if "django_tasks" in INSTALLED_APPS else [])]
DATABASES["default"]["NAME"] += "_plugin"
DATABASES["default"]["TEST"] = {"NAME": DATABASES["default"]["NAME"]}
ROOT_URLCONF = ""
MIDDLEWARE = TEMPLATES = []
"""

TESTS = """
import datetime as dt
import pytest
from django.test import TestCase
from django_pgqueue.tasks import task

@task(queue_name="mail")
def send(letter):
    return letter

def test_drain(pgqueue):
    send.enqueue(7)
    pgqueue.assert_enqueued(send, args=[7], queue="mail", count=1)
    assert [result.return_value for result in pgqueue.drain()] == [7]
    pgqueue.assert_not_enqueued(send)

def test_each_test_begins_with_an_empty_queue(pgqueue):
    pgqueue.assert_not_enqueued()
    send.enqueue(7)

def test_clock(pgqueue, pgqueue_clock):
    send.using(run_after=dt.timedelta(hours=1)).enqueue(7)
    assert pgqueue.drain() == []
    pgqueue_clock.advance(dt.timedelta(hours=1))
    assert len(pgqueue.drain()) == 1

def test_inline(pgqueue_inline):
    assert send.enqueue(7).return_value == 7

@pytest.mark.django_db(transaction=True)
def test_with_commits(pgqueue):
    send.enqueue(7)
    assert len(pgqueue.drain()) == 1

@pytest.mark.usefixtures("pgqueue_inline")
class TestsOfDjango(TestCase):
    def test_inline(self):
        assert send.enqueue(7).return_value == 7

def test_what_it_says(pgqueue):
    send.enqueue(8)
    pgqueue.assert_enqueued(send, args=[7])
"""

WITHOUT_DJANGO = """
import sys

def test_the_plugin_costs_nothing():
    assert "django_pgqueue.pytest_plugin" in sys.modules
    assert not [name for name in sys.modules if name == "django" or name.startswith("django.")]

def test_a_fixture_says_what_it_needs(pgqueue):
    pass
"""


def test_the_plugin_is_registered() -> None:
    [point] = entry_points(group="pytest11", name="pgqueue")
    assert point.value == "django_pgqueue.pytest_plugin"


@pytest.mark.slow
def test_tests_of_a_project_use_the_fixtures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(project_settings=SETTINGS, test_project=TESTS)
    pytester.makeini("[pytest]\nfilterwarnings = error")
    done = pytester.runpytest_subprocess("--ds=project_settings", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=6, failed=1)
    done.stdout.fnmatch_lines(
        ["E*AssertionError: test_project.send with args=[[]7] is not enqueued.", "*args=[[]8]*<- other args"]
    )
    done.stdout.no_fnmatch_line("*enqueued.py*")


def test_a_project_without_django(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    pytester.makepyfile(WITHOUT_DJANGO)
    done = pytester.runpytest_subprocess("-p", "no:django", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*need the database fixtures of pytest-django: python -m pip install pytest-django*"])


# The fixtures in this very project


@pytest.mark.django_db(transaction=True)
def test_async(pgqueue: Any) -> None:
    from asgiref.sync import async_to_sync

    async def enqueue_and_look() -> None:
        await note.aenqueue(1)
        await pgqueue.aassert_enqueued(note, args=[1])
        assert len(await pgqueue.adrain()) == 1
        await sync_to_async(pgqueue.assert_not_enqueued)()

    async_to_sync(enqueue_and_look)()
