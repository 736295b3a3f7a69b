"""One Spark for all tests of this folder, on the test database.  They have the marker spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.spark import java
from tests.spark.quick import QUICK
from tests.support.fixtures.sessions import connect, conninfo, session, sessions, test_database
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

__all__ = ["connect", "conninfo", "session", "sessions", "test_database"]

MASK_KEY = "a key that only tests have"
HERE = Path(__file__).parent
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["*"]

LEFT_OPEN = """
    select pid from pg_stat_activity where application_name = 'pgqueue-spark' and datname = current_database()
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # PySpark leaves sockets to the garbage collector, and calls what Python is about to take away.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """For as long as a program is started: its children keep it."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What starts Java here, or starts a program that does, starts one that is quick."""
    with environment(JAVA_HOME=str(java.home(tmp_path_factory.mktemp("java")))):
        yield


@pytest.fixture(scope="session")
def url(test_database: str) -> str:
    """The test database, as an environment variable has it."""
    return url_of(test_database)


def url_of(conninfo: str) -> str:
    at: dict[str, Any] = conninfo_to_dict(conninfo)
    return f"postgresql://{at['user']}:{quote(at['password'])}@{at['host']}:{at.get('port') or 5432}/{at['dbname']}"


@pytest.fixture(scope="session")
def spark(url: str) -> Iterator[SparkSession]:
    """Two tasks at a time, each of which may be tried three times."""
    from django_pgqueue.spark import session as sessions_of_spark

    with environment(DATABASE_URL=url, PGQUEUE_SPARK_URL=url, PGQUEUE_MASK_KEY=MASK_KEY):
        spark = sessions_of_spark.start("tests", master="local[2,3]", configuration=QUICK)
    yield spark
    spark.stop()


@pytest.fixture
def here(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is what an executor is: it knows where the database is."""
    monkeypatch.setenv("DATABASE_URL", url)


@pytest.fixture
def queue(connect: Connect) -> Iterator[Session]:
    """The queue, empty before and after; and nobody has left a connection open."""
    queue = connect()
    yield queue
    wait_until(lambda: not queue.rows(LEFT_OPEN), "the connections of tasks are closed")


def private_disk(place: Path) -> tuple[str, ...]:
    """The beginning of a command that sees another disk at a place: as on a machine that does not share the folder."""
    place.mkdir()
    private = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs "{place}" && exec "$@"', "sh")
    refused = subprocess.run([*private, "true"], capture_output=True, text=True, check=False)
    if refused.returncode:
        pytest.skip(f"this process may not make a mount namespace: {refused.stderr.strip()}")
    return private


def finish(session: Session, number: int = 1, **message: Any) -> list[int]:
    """So many messages, run and finished: their ids.  One transaction, if the session does not commit by itself."""
    ids = session.create_batch(number, **message)
    session.rows("select pgqueue_message_cancel(%s::bigint[])", [ids])
    return ids


def without_old_pages(session: Session) -> None:
    """Slices are cut by the sizes of days: pages that other tests have emptied, perhaps before midnight, count too."""
    session.rows("truncate pgqueue_attempt")


def numbers(frame: DataFrame, column: str = "message_id") -> list[int]:
    return sorted(row[0] for row in frame.select(column).collect())


def arguments(queue: Session) -> list[int]:
    """The one argument of each job that waits."""
    return sorted(message.content["args"][0] for message in queue.messages())
