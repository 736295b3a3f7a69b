"""What breaks off in the middle: by Ctrl-C, or because PostgreSQL goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from psycopg.conninfo import conninfo_to_dict
from pyspark.errors import PySparkException

from django_pgqueue.spark import __main__ as script
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.pipeline import export, follow
from django_pgqueue.spark.schema import ATTEMPTS
from tests.spark import programs
from tests.spark.conftest import finish
from tests.spark.pipeline.conftest import settled, url_without_password
from tests.spark.pipeline.test_export import ids
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.support.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True)]
ROWS = 3000
END_ALL = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'pgqueue-spark' and datname = current_database()
"""


class Slow:
    """A read of the history that takes a minute, so that what reads is in the middle for as long as a test needs: the
    address of the database leads to a view of the history first, which sleeps.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self.schema = f"slow_{uuid4().hex}"
        columns = ", ".join(f"a.{name}" for name in ATTEMPTS.fieldNames() if name != "traceback")
        session.rows(f"create schema {self.schema}")
        # Not volatile: a count of the rows has to leave it out.
        session.rows(
            f"create function {self.schema}.nap(p_id bigint) returns text language plpgsql stable "
            "as 'begin perform pg_sleep(0.02); return null; end'"
        )
        session.rows(
            f"create view {self.schema}.pgqueue_attempt as select {columns}, {self.schema}.nap(a.id) as traceback "
            "from pgqueue_attempt a"
        )
        self.home = session.one("select current_schema()::text")
        self.folder = folder

    def url(self, conninfo: str, port: int | None = None) -> str:
        path = quote(f"-csearch_path={self.schema},{self.home}")
        return f"{url_without_password(conninfo, self.folder, port)}&options={path}"

    def is_read(self, session: Session) -> bool:
        return bool(
            session.one(
                "select count(*) from pg_stat_activity "
                "where application_name = 'pgqueue-spark' and datname = current_database() and wait_event = 'PgSleep'"
            )
        )


@pytest.fixture
def history(queue: Session) -> Iterator[Session]:
    finish(queue, ROWS)
    settled(queue)
    yield queue
    queue.rows(END_ALL)  # a server that writes to nobody notices late


@pytest.fixture
def slow(history: Session, tmp_path: Path) -> Iterator[Slow]:
    slow = Slow(history, tmp_path)
    yield slow
    history.rows(END_ALL)
    history.rows(f"drop schema {slow.schema} cascade")


class Away:
    """The way to PostgreSQL, and its end."""

    def __init__(self, conninfo: str, slow: Slow) -> None:
        at: dict[str, Any] = conninfo_to_dict(conninfo)
        if at["host"] not in {"127.0.0.1", "localhost"}:
            pytest.skip("the proxy reaches servers of this machine only")
        self.proxy = Proxy(int(at.get("port") or 5432))
        self.options = {"url": slow.url(conninfo, self.proxy.port)}

    def go(self) -> None:
        self.proxy.refuses = True
        self.proxy.cut()


@pytest.fixture
def away(conninfo: str, slow: Slow) -> Away:
    return Away(conninfo, slow)


@contextmanager
def in_the_middle(session: Session, slow: Slow, happen: Callable[[], object]) -> Iterator[None]:
    """Something happens as soon as the rows are being read."""

    def wait() -> None:
        wait_until(lambda: slow.is_read(session), "the slow read has begun", 100)
        happen()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_server_lost_during_a_read_is_a_clear_error(
    spark: SparkSession, history: Session, slow: Slow, away: Away
) -> None:
    frame = spark.read.format("pgqueue").options(**away.options).load()
    with (
        in_the_middle(history, slow, away.go),
        pytest.raises(PySparkException, match=r"PostgreSQL (could not|cannot) be re") as e,
    ):
        frame.collect()
    assert "passfile" not in str(e.value)


def test_a_server_that_goes_away_during_an_export_leaves_the_lake_as_it_was(  # noqa: PLR0917
    spark: SparkSession, history: Session, slow: Slow, away: Away, lake: Path, options: dict[str, str]
) -> None:
    export(spark, lake, options=options)
    before, version = ids(spark, lake), Lake.open(spark, lake).version().number
    finish(history, ROWS)
    settled(history)
    with (
        in_the_middle(history, slow, away.go),
        pytest.raises(SparkQueueError, match=r"PostgreSQL (could not|cannot) be re"),
    ):
        export(spark, lake, options=away.options)
    assert Lake.open(spark, lake).version().number == version
    assert ids(spark, lake) == before
    history.rows(END_ALL)
    assert export(spark, lake, options=options).rows == ROWS
    assert ids(spark, lake) == [attempt.id for attempt in history.history()]


def test_a_server_that_goes_away_while_it_is_followed_is_an_error_and_nothing_is_lost(  # noqa: PLR0917
    spark: SparkSession, history: Session, slow: Slow, away: Away, lake: Path, options: dict[str, str]
) -> None:
    with in_the_middle(history, slow, away.go), pytest.raises(Exception, match=r"PostgreSQL (could not|cannot) be re"):
        follow(spark, lake, options=away.options, once=True)
    assert Lake.open(spark, lake).version().files() == []
    history.rows(END_ALL)
    follow(spark, lake, options=options, once=True)
    assert ids(spark, lake) == [attempt.id for attempt in history.history()]


def test_ctrl_c_during_an_export_is_reported_and_leaves_the_lake_as_it_was(  # noqa: PLR0917
    spark: SparkSession,
    history: Session,
    slow: Slow,
    lake: Path,
    options: dict[str, str],
    conninfo: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("export", "--lake", str(lake), "--option", f"url={slow.url(conninfo)}", "--option", "urlVariable=NONE")
    interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    with in_the_middle(history, slow, interrupt), pytest.raises(CommandError, match="Interrupted") as caught:
        call_command("qpipeline", *words, verbosity=0)
    assert caught.value.returncode == 130
    spark.sparkContext.cancelAllJobs()  # or it tries the read again
    history.rows(END_ALL)
    wait_until(lambda: not slow.is_read(history), "the slow read has ended", 100)
    with in_the_middle(history, slow, interrupt):
        assert script.main([*words]) == 130
    assert "Interrupted. The lake has no partial results" in capsys.readouterr().err
    assert Lake.open(spark, lake).version().files() == []
    history.rows(END_ALL)
    assert export(spark, lake, options=options).rows == ROWS


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_a_follow(
    spark: SparkSession, history: Session, lake: Path, url: str, options: dict[str, str]
) -> None:
    process = pipeline("follow", lake, url, "--seconds", "0.2")
    opened = Lake.open_or_new(spark, lake)
    wait_until(lambda: opened.exists and opened.version().files(), "the first batch is there", 400)
    finish(history, ROWS)
    code, said, errors = interrupted(process)
    assert code == 0, errors
    assert f"added {ROWS:,} attempts" in said or f"added {2 * ROWS:,} attempts" in said
    assert "__main__.py" not in errors, "a traceback of ours"
    seen = ids(spark, lake)
    assert len(seen) in {ROWS, 2 * ROWS}
    settled(history)
    follow(spark, lake, options=options, once=True)
    assert ids(spark, lake) == [attempt.id for attempt in history.history()]


@pytest.mark.slow
def test_ctrl_c_while_spark_starts_leaves_no_java(lake: Path, url: str) -> None:
    process = pipeline("check", lake, url)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: any(is_java(child) for child in children.read_text().split()), "Java is being started", 60)
    code, said, errors = interrupted(process)  # which waits for all that have its standard error
    assert (code, said) == (130, "")
    assert errors.splitlines()[-1].startswith("Interrupted. ")
    assert "Traceback" not in errors


def is_java(child: str) -> bool:
    return b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes()


@pytest.mark.slow
def test_a_task_that_fails_is_told_without_traces_of_java_and_python(history: Session, lake: Path, url: str) -> None:
    settled(history)
    folder = lake / f"attempts/date={history.history()[0].finished_at:%Y-%m-%d}"
    folder.parent.mkdir(parents=True)
    folder.touch()
    said, errors = pipeline("export", lake, url).communicate(timeout=120)
    assert said == ""
    assert errors.splitlines()[-1].startswith("A task failed: ")
    assert errors.count("date=") == 1
    assert "\tat " not in errors
    assert "Traceback" not in errors


def pipeline(step: str, lake: Path, url: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "django_pgqueue.spark", step, "--lake", str(lake), "--master", "local[1]"]
    return subprocess.Popen(
        [*words, *arguments],
        env={**os.environ, **programs.ENVIRONMENT, "DATABASE_URL": url, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """As a terminal does it: the whole group gets the signal."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        said, errors = process.communicate(timeout=60)
    finally:
        programs.kill(process)
    return process.returncode, said, errors
