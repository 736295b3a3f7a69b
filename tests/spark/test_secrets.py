"""No password is in a plan, in a log, or in what an error says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

PROGRAM = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from django_pgqueue.spark.session import start
from tests.spark.quick import QUICK

spark = start("secrets", master="local[1]", configuration=QUICK | {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": sys.argv[1], "spark.eventLog.compress": "false",
    "spark.log.level": "INFO",
})
frame = spark.read.format("pgqueue").load()
frame.explain("extended")
frame.count()
jobs = spark.range(3).select(F.lit("1").alias("content"))
jobs.write.format("pgqueue").mode("append").save()
for wrong in ({"where": "colour = 1"}, {"urlVariable": "WRONG_URL"}, {"url": "postgresql://me:tell-nobody@db/shop"}):
    try:
        spark.read.format("pgqueue").options(**wrong).load().count()
        raise SystemExit("no error")
    except PySparkException as error:
        print(error)
print(spark.sparkContext.getConf().toDebugString())
"""


def test_no_password_is_shown(queue: Session, url: str, tmp_path: Path) -> None:
    password = urlsplit(url).password
    assert password
    variables = {
        **os.environ,
        "DATABASE_URL": url,
        "WRONG_URL": url.replace(password, "let-me-in"),
        "PYTHONPATH": str(ROOT),
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    written = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    everything = ended.stdout + ended.stderr + written
    assert "BatchScan pgqueue" in everything  # the plan is there
    assert "password authentication failed" in everything
    assert len(queue.messages()) == 3
    for secret in (password, "let-me-in", "tell-nobody"):
        assert secret not in everything
