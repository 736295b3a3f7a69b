"""Every name that the documentation promises can be imported from where it says, and from where it was before."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest

from tests.support.pages import FOLDER, PAGES


def names_by_module(table: str) -> dict[str, list[str]]:
    """Reads lines such as ``module: name name``; a line that begins with blanks goes on with the one before."""
    lines = [line for line in table.replace("\n    ", " ").splitlines() if line and not line.startswith("#")]
    return {module: names.split() for module, _, names in (line.partition(": ") for line in lines)}


PROMISED = names_by_module("""
# The names of most projects, imported when they are used.
django_pgqueue: Call Exchange Exponential Queue Retry batch cron emit enqueue_many every publish subscribe task
# Tasks, and what they may say.
django_pgqueue.tasks: Exponential PgQueueTask batch cron every task
# Enqueue.
django_pgqueue.backend: Call PgQueueBackend enqueue_many
# Durable tasks.
django_pgqueue.durable: Decision DurableContext Suspension aemit decide emit
# Raw messages.
django_pgqueue.queue: Queue ReceivedMessage
# Exchanges.
django_pgqueue.routing: Exchange Published Route apublish declare_binding declare_exchange publish subscribe
django_pgqueue.control: Filter cancel count_edit edit edit_state pause pause_schedule release_channel
    repair_channels resume resume_edit resume_schedule run_schedule set_channel stop_edit
django_pgqueue.exceptions: AttemptLost BudgetExceeded ChannelFull ChannelReleased ChildFailed ContentTooLarge
    DependencyFailed DuplicateMessage EventConflict HalfInstalled InvalidContent InvalidEdit InvalidMessage
    InvalidPattern InvalidSchedule InvalidStep OutdatedQueue PgQueueError Retry SlotDied StepNotRepeated
    TaskBeingImported TaskCancelled TaskTimeout UnknownExchange UnknownTask
django_pgqueue.models: Approval Arrival Attempt Binding Budget Channel Child Edit Ended Event Exchange Lane Message
    Overview QueueState ReportError ReportHour ReportQueue Rollup Schedule Step Worker
# What settings, URLs and LOGGING name.
django_pgqueue.logs: JsonFormatter
django_pgqueue.metrics.urls: urlpatterns
django_pgqueue.routers: PgQueueRouter
django_pgqueue.stand_ins: DummyBackend ImmediateBackend InlineBackend
django_pgqueue.traces: processing
# The tests of projects.
django_pgqueue.pytest_plugin: pgqueue pgqueue_clock pgqueue_inline
django_pgqueue.testing: WORKER Clock Crash CrashReport aassert_enqueued aassert_not_enqueued
    acrash_at_every_statement adrain assert_enqueued assert_not_enqueued clock crash_at_every_statement drain
    inline
# The tasks API of Django, or of the backport.
django_pgqueue.compat: InvalidTask TaskContext TaskResult TaskResultDoesNotExist TaskResultStatus
    task_backends task_enqueued task_finished task_started
# Old paths, through 0.x.
django_pgqueue.bulk: Call enqueue_many
django_pgqueue.dependencies: batch
django_pgqueue.recurrence: cron every
django_pgqueue.retry: Exponential
# Messages that wait may name it.
django_pgqueue.admin.again: enqueue_again
""")
SPARK = names_by_module("""
django_pgqueue.spark: pipeline
django_pgqueue.spark.lake: read_lake
django_pgqueue.spark.report: percentiles rollup
django_pgqueue.spark.session: start
django_pgqueue.spark.snapshot: horizon
django_pgqueue.spark.source: PgQueueDataSource
django_pgqueue.spark.tasks: declared
""")
NOT_PROMISED = {"django_pgqueue.worker.upkeep.scheduler.Scheduler"}
"""Imports of the hidden checks of a page, which no reader sees."""
MOVED = {
    "django_pgqueue.bulk": "django_pgqueue.backend",
    "django_pgqueue.dependencies": "django_pgqueue.tasks",
    "django_pgqueue.recurrence": "django_pgqueue.tasks",
    "django_pgqueue.retry": "django_pgqueue.tasks",
}
IMPORT = re.compile(r"^from (django_pgqueue[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.mark.parametrize("module", PROMISED)
def test_a_promised_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in PROMISED[module] if not hasattr(found, name)] == []


@pytest.mark.spark
@pytest.mark.parametrize("module", SPARK)
def test_a_promised_name_of_spark_exists(module: str) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    assert [name for name in SPARK[module] if not has(module, name)] == []


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_exports_the_same_object(old: str) -> None:
    before, now = importlib.import_module(old), importlib.import_module(MOVED[old])
    for name in PROMISED[old]:
        assert getattr(before, name) is getattr(now, name)


def test_names_that_packages_export_are_promised() -> None:
    for module, names in PROMISED.items():
        assert set(getattr(importlib.import_module(module), "__all__", names)) >= set(names), module
        if module in (
            "django_pgqueue.models",
            "django_pgqueue.routing",
            "django_pgqueue.tasks",
            "django_pgqueue.testing",
        ):
            assert sorted(importlib.import_module(module).__all__) == sorted(names), module


def test_names_that_pages_import_are_promised() -> None:
    promised = {f"{module}.{name}" for module, names in {**PROMISED, **SPARK}.items() for name in names}
    modules = {*PROMISED, *SPARK}
    imported = {
        f"{module}.{name.strip()}"
        for page in PAGES
        for module, names in IMPORT.findall(page.read_text())
        for name in names.split(",")
    }
    assert imported - promised - modules == NOT_PROMISED


def test_pages_teach_the_new_paths() -> None:
    old = re.compile(r"\b(" + "|".join(map(re.escape, MOVED)) + r")\b")
    pages = [page for page in PAGES if page != FOLDER / "about" / "changelog.md"]
    assert [page for page in pages if old.search(page.read_text())] == []


def has(module: str, name: str) -> bool:
    """Returns whether a module has a name, or a package a module of that name."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None
