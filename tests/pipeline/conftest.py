"""A Spark session, a database and a lake for the tests of the pipeline."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.sql.conftest import Sessions, connect, conninfo, sessions, test_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["Sessions", "connect", "conninfo", "sessions", "test_database"]
VARIABLE = "PGQUEUE_SPARK_URL"
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]


@pytest.fixture(scope="session")
def spark(test_database: str) -> Iterator[SparkSession]:
    from django_pgqueue.spark.session import start

    os.environ[VARIABLE] = test_database
    session = start("tests", master="local[2]", configuration={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def options() -> dict[str, str]:
    return {"urlVariable": VARIABLE}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
