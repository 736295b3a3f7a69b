"""``manage.py qpipeline`` and ``python -m django_pgqueue.spark``, beside a real worker."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client, override_settings
from psycopg import sql

from django_pgqueue.management.commands.qpipeline import VARIABLE, publish
from django_pgqueue.models import Attempt, ReportHour
from django_pgqueue.spark.__main__ import main
from django_pgqueue.spark.lake import Lake, read_lake
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.pipeline import Scenario, report, whatif
from django_pgqueue.spark.schema import ATTEMPTS
from tests.settings import TASKS
from tests.spark.pipeline.conftest import settled
from tests.support.address import conninfo
from tests.support.fixtures.workers import diary, environment, rows, session, start
from tests.support.site.tasks import fail, take
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.fixtures.workers import Start

__all__ = ["diary", "environment", "rows", "session", "start"]
pytestmark = pytest.mark.django_db(transaction=True)
JOBS, SECONDS, SLOTS = 40, 0.05, 2


@pytest.fixture
def settings_with_lake(lake: Path) -> Iterator[None]:
    with override_settings(TASKS={"default": {**TASKS["default"], "OPTIONS": {"LAKE": lake}}}):
        yield


def qpipeline(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    call_command("qpipeline", *arguments)
    return capsys.readouterr().out


@pytest.mark.usefixtures("settings_with_lake")
def test_jobs_become_data_a_report_insights_a_prediction_and_jobs_again(  # noqa: PLR0917
    spark: SparkSession,
    lake: Path,
    start: Start,
    connect: Connect,
    options: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    start("--threads", str(SLOTS))
    fail.enqueue("no")
    wait_until(lambda: Attempt.objects.count() == 1, "the worker is warm")
    with transaction.atomic():
        for _ in range(JOBS):
            take.enqueue(SECONDS)
    wait_until(lambda: Attempt.objects.count() == JOBS + 1, "all jobs have ended")

    settled(connect())
    assert f"exported {JOBS + 1} attempts" in qpipeline(capsys, "export", "--max-rows", "30")
    assert Lake.open(spark, lake).version().number > 1, "it came in pieces"
    said = qpipeline(capsys, "report", "--target", "*=0.001")
    assert "x report_hour" in said
    assert "  no duplicates\n  no gaps\n  clocks: all times are in order\n  lag: everything is exported\n" in said
    before = list(ReportHour.objects.order_by("hour", "task").values_list("hour", "task", "succeeded", "run_histogram"))
    report(spark, lake, targets={"*": 0.001}, options=options)
    again = list(ReportHour.objects.order_by("hour", "task").values_list("hour", "task", "succeeded", "run_histogram"))
    assert again == before
    assert sum(succeeded for _, _, succeeded, _ in before) == JOBS
    assert read_lake(spark, lake, "report_hour").count() == len(before)
    insights = look_at_insights()
    for words in ("tests.support.site.tasks.take", "started too late", "ValueError"):
        assert words in insights

    [found] = whatif(spark, lake, [Scenario(slots=SLOTS)])
    waits, without_gaps = waits_ms()
    assert found.wait_p50_ms == pytest.approx(statistics.median(without_gaps), rel=0.1, abs=10)
    assert found.longest_ms == pytest.approx(without_gaps[-1], rel=0.1, abs=10)
    assert found.longest_ms <= waits[-1] + 10
    said = qpipeline(capsys, "whatif", "--slots", "1,2", "--within", "3600")
    assert "1 slots, load x 1" in said
    assert "start within 3600 s with 1 slots" in said

    assert "1 messages selected" in qpipeline(capsys, "replay", "--where", "status = 'failed'", "--dry-run")
    assert "converted 0 files" in qpipeline(capsys, "convert"), "it is none of an earlier release"
    assert "erased 1 attempts" in qpipeline(capsys, "erase", "--where", "status = 'failed'")
    assert "files, all there" in qpipeline(capsys, "check")


def waits_ms() -> tuple[list[float], list[float]]:
    """From when a job was due until it was started, as the history has it, and as it would have been without what the
    worker does between two jobs: a simulation does not know that, and it is much where many tests share a machine.
    """
    times = "started_at", "finished_at", "created_at", "dequeue_at"
    attempts = [
        (began.timestamp() * 1000, (ended - began).total_seconds() * 1000, max(created, due).timestamp() * 1000)
        for began, ended, created, due in Attempt.objects.order_by("started_at").values_list(*times)
    ]
    waits = [began - due for began, _, due in attempts]
    free, without_gaps = [0.0] * SLOTS, []
    for _, took, due in attempts:
        begins = max(due, free.pop(0))
        without_gaps.append(begins - due)
        free = sorted([*free, begins + took])
    return sorted(waits), sorted(without_gaps)


def look_at_insights() -> str:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client.get("/admin/django_pgqueue/reporthour/").content.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "--lake", "{lake}/strange"], "not a lake of django_pgqueue: it contains 'file'"),
        (["report", "--lake", "{lake}/none"], "no lake at"),
        (["export", "--lake", "{lake}/jobs%20old"], "The path of a lake has no '%20', as"),
        (["export", "--lake", "{lake}/jobs[1]"], r"The path of a lake has no '\['"),
        (["export", "--lake", "{lake}/jo*s"], r"The path of a lake has no '\*'"),
        (["export", "--lake", "s3a://data/jobs#1"], "The URL of a lake has no '#', as s3a://data/jobs#1 has"),
        (["export", "--lake", "s3a://data/jobs[1]"], r"The URL of a lake has no '\['"),
        (["export", "--lake", "file://{lake}/jobs?1"], r"The URL of a lake has no '\?'"),
        (["export", "--lake", "file://other{lake}/new"], "is a folder of the machine other"),
        (["export", "--lake", "{lake}/" + "x" * 256], "Files cannot be read or written: .*File name too long"),
        (["export", "--backend", "other"], "TASKS has no backend 'other'"),
        (["export"], "The lake is not set."),
        (["export", "--lake", "{lake}/new", "--option", "maxConections=1"], "Did you mean maxConnections"),
        (["export", "--lake", "{lake}/new", "--option", "url=postgresql://nobody@127.0.0.1:1/x"], "cannot be reached"),
        (["report", "--lake", "{lake}/empty"], "The lake has no attempts"),
        (["whatif", "--lake", "{lake}/empty", "--slots", "4,0"], "'0' is not a whole number from 1 on"),
        (["export", "--lake", "{lake}/empty", "--max-rows", "²"], "'²' is not a whole number"),
        (["export", "--lake", "{lake}/empty", "--max-rows", "9" * 19], "of at most 18 digits"),
        (["whatif", "--lake", "{lake}/empty", "--share", "101"], "'101' is more than 100 per cent"),
        (["follow", "--lake", "{lake}/empty", "--seconds", "nan"], "'nan' is not a number above 0"),
        (["follow", "--lake", "{lake}/empty", "--seconds", "0"], "'0' is not a number above 0"),
        (["report", "--lake", "{lake}/empty", "--target", "mail=soon"], "'soon' is not a number above 0"),
        (["report", "--lake", "{lake}/empty", "--since", "yesterday"], "not a day such as"),
        (["erase", "--lake", "{lake}/empty", "--where", "queue = '\udcff'"], "is not text in UTF-8"),
        (["export", "--lake", "{lake}/\udcff"], "is not text in UTF-8"),
        (["check", "--lake", "{lake}/empty", "--master", "\udcff"], "is not text in UTF-8"),
        (["export", "--lake", "{lake}/new", "--option", "maskKeyVariable=\udcff"], "is not text in UTF-8"),
    ],
)
def test_a_mistake_is_a_command_error_and_nothing_is_written(
    spark: SparkSession, lake: Path, options: Any, arguments: list[str], words: str
) -> None:
    (lake / "strange").mkdir(parents=True)
    (lake / "strange" / "file").touch()
    Lake.open_or_new(spark, lake / "empty").make(ATTEMPTS, {"pgqueue.source": "1/x", **KeptColumns().settings()})
    with pytest.raises(CommandError, match=words):
        call_command("qpipeline", *(word.format(lake=lake) for word in arguments), verbosity=0)
    assert not list(lake.rglob("*.parquet"))


def test_spark_assumes_the_role_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login may have no rights of its own."""
    role = 'Shop "a" b\\c'
    options = {"assume_role": role, "options": "-c search_path=elsewhere"}
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", connection.settings_dict["OPTIONS"] | options)
    named = sql.Identifier(role)
    with psycopg.connect(conninfo(), autocommit=True) as session:
        session.execute(sql.SQL("create role {}").format(named))
        try:
            publish("default")
            with psycopg.connect(os.environ[VARIABLE]) as assumed:
                found = assumed.execute("select current_user, current_setting('search_path')").fetchone()
        finally:
            session.execute(sql.SQL("drop role {}").format(named))
    assert found == (role, "elsewhere")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export"], "The environment variable DATABASE_URL is not set"),
        (["follow", "--option", "maxConections=1"], "Did you mean maxConnections"),
    ],
)
def test_what_is_wrong_with_the_address_is_told_before_spark_starts(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert main([*arguments, "--lake", "x"]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "starting Spark" not in said


def test_a_package_that_is_missing_is_named() -> None:
    program = (
        "import sys; sys.modules['deltalake'] = None; from django_pgqueue.spark.__main__ import main; "
        "sys.exit(main(['check', '--lake', 'x']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("The pipeline runs on Spark, and deltalake is not installed: ")
    assert "Traceback" not in ended.stderr


def test_the_script_for_spark_submit_names_missing_arguments(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "django_pgqueue.spark", "export"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert ended.returncode == 2
    assert "--lake" in ended.stderr
    assert VARIABLE not in ended.stderr
