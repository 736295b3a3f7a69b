"""The way round: a shop's jobs become data and charts, and rows become jobs that run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, override_settings

from django_pgqueue.models import Attempt
from django_pgqueue.spark.source import registered
from django_pgqueue.spark.tasks import declared
from tests.settings import TASKS
from tests.spark.pipeline.conftest import settled
from tests.support.fixtures.browser import chromium, page, place_an_order, shop, worker
from tests.support.fixtures.example import mailers
from tests.support.fixtures.workers import diary, environment, rows, session, start
from tests.support.site.tasks import write_row
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.browser import Page
    from tests.support.fixtures.sessions import Connect
    from tests.support.fixtures.workers import Session, Start

__all__ = ["chromium", "diary", "environment", "mailers", "page", "rows", "session", "shop", "start", "worker"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ORDERS = 3
JOBS = 100_000 if "PGQUEUE_SPARK_LONG" in os.environ else 1_000


@pytest.mark.browser
@pytest.mark.usefixtures("options", "worker")
def test_what_the_shop_has_done_is_seen_in_insights(
    spark: SparkSession, shop: Page, lake: Path, connect: Connect
) -> None:
    for _ in range(ORDERS):
        place_an_order(shop)
        shop.shows("Receipt for order")
    shop.press("Book the courier")
    wait_until(lambda: Attempt.objects.filter(status="retried").exists(), "the courier's line was busy")
    settled(connect())
    with override_settings(TASKS={"default": {**TASKS["default"], "OPTIONS": {"LAKE": lake}}}):
        call_command("qpipeline", "export", verbosity=0)
        call_command("qpipeline", "report", "--target", "*=60", verbosity=0)

    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    shop.driver.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value, "path": "/"})
    shop.open("/admin/django_pgqueue/reporthour/")
    shop.shows("Insights", "shop.tasks.send_receipt")
    shop.save("insights-of-the-shop", 1600)


def test_rows_of_a_dataframe_become_jobs_and_each_runs_once(
    spark: SparkSession, start: Start, session: Session, rows: str
) -> None:
    # Other tests of a run leave sessions of their own active in the same JVM.
    frame = (
        registered(spark)
        .range(JOBS, numPartitions=2)
        .selectExpr(f"'{write_row.module_path}' as task", "to_json(array(cast(id as string))) as args")
    )
    frame.write.format("pgqueue").option("tasks", declared(write_row)).mode("append").save()
    start("--threads", "4")
    succeeded = "select count(*) from pgqueue_attempt where final and status = 'succeeded'"
    wait_until(lambda: session.value(succeeded) == JOBS, "all jobs have succeeded", 60 + JOBS / 200)
    written = session.rows("select count(*), count(distinct word), max(word::int) from worker_row")
    assert written == [(JOBS, JOBS, JOBS - 1)]
    assert session.value("select count(*) from pgqueue_message") == 0
