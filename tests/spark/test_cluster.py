"""Executors that are processes of their own: everything they need they have been sent, or find in their environment."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from django_pgqueue.spark import session as sessions_of_spark
from tests.spark import programs
from tests.spark.conftest import arguments, environment, finish
from tests.spark.quick import QUICK_CLUSTER
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sessions import Session

EVERYTHING = "PGQUEUE_SPARK_LONG" in os.environ
"""Set it to run what takes minutes: see tests/spark/test_kills.py too."""


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def round_trip(queue: Session, url: str, folder: Path, master: str) -> None:
    ended = finish(queue, 500) + finish(queue, 500)
    answer = programs.answer(programs.start("round_trip", master, folder, url=url))
    assert answer["history"] == answer["lake"] == ended
    assert arguments(queue) == list(range(300))
    assert answer["executors"] == 2
    assert answer["exported"] == len(ended)
    assert answer["ids"] == queue.column("select id from pgqueue_attempt order by 1")
    assert answer["reported"]["report_hour"] == queue.one("select count(*) from pgqueue_report_hour") > 0


def test_a_cluster_of_executors_on_this_machine(queue: Session, url: str, tmp_path: Path) -> None:
    round_trip(queue, url, tmp_path, "local-cluster[2,1,1024]")


@pytest.mark.skipif(not EVERYTHING, reason="takes a minute: set PGQUEUE_SPARK_LONG")
def test_a_standalone_cluster_with_two_workers(queue: Session, url: str, tmp_path: Path) -> None:
    with standalone(url, tmp_path) as master:
        round_trip(queue, url, tmp_path, master)
        finish(queue, 7)
        assert "exported 7 attempts" in submitted(
            url, "export", tmp_path / "jobs", "--master", master, "--conf", f"spark.eventLog.dir={tmp_path}"
        )
    # Logs of the master, of the workers and of the executors, events with plans, and the lake.
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in written), "the executors' logs are there"
    password = str(urlsplit(url).password).encode()
    assert [path for path in written if password in path.read_bytes()] == []


def test_spark_submit_runs_the_pipeline_with_its_arguments(queue: Session, url: str, tmp_path: Path) -> None:
    """One task, which the master says: a session that says something else itself would be another one."""
    finish(queue, 7)
    said = submitted(
        url, "export", tmp_path / "jobs", "--master", "local[1]", "--conf", f"spark.eventLog.dir={tmp_path}"
    )
    assert "exported 7 attempts" in said
    [log] = [path for path in tmp_path.rglob("*") if path.name.startswith(("local-", "events_1"))]
    assert '"spark.master":"local[1]"' in log.read_text()


def submitted(url: str, step: str, lake: Path, *arguments: str) -> str:
    import pyspark

    folder = Path(pyspark.__file__).parent
    script = Path(sessions_of_spark.__file__).parent / "__main__.py"
    configuration = {**QUICK_CLUSTER, "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    options = [word for item in configuration.items() for word in ("--conf", "=".join(item))]
    with environment(DATABASE_URL=url, **programs.ENVIRONMENT):
        os.environ["JAVA_HOME"] = str(sessions_of_spark.java_home())
        ended = subprocess.run(
            [folder / "bin" / "spark-submit", *options, *arguments, script, step, "--lake", lake],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert str(urlsplit(url).password) not in ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.skipif(not EVERYTHING, reason="takes a minute: set PGQUEUE_SPARK_LONG")
def test_a_task_that_runs_twice_counts_once(queue: Session, url: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    # Spark runs a task for the second time on another host only.
    with standalone(url, tmp_path, "127.0.0.1", "127.0.0.2") as master:
        answer = programs.answer(programs.start("speculate", master, 400, url=url, PGQUEUE_TEST_MARKS=str(marks)))
    assert answer["tries"] == ["0", "1"]
    assert arguments(queue) == list(range(400))
    assert not queue.rows("select from pgqueue_staged")


@contextmanager
def standalone(url: str, folder: Path, *hosts: str, prefix: tuple[str, ...] = ()) -> Iterator[str]:
    """A master and two workers, or one for each host, whose environment has the secret.  ``prefix`` starts a worker."""
    hosts = hosts or ("127.0.0.1", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with environment(DATABASE_URL=url, **programs.ENVIRONMENT):
        os.environ["JAVA_HOME"] = str(sessions_of_spark.java_home())
        processes = [daemon(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
        options = ["--cores", "1", "--memory", "1g", "--work-dir", "work", "--webui-port", "0"]
        for number, host in enumerate(hosts):
            words = ["--host", host, *options, master]
            processes.append(daemon(folder / str(number), "worker.Worker", *words, prefix=prefix))
    try:
        log = folder / "master.Master.log"
        wait_until(
            lambda: log.read_text().count("Registering worker") == len(hosts), "all workers have registered", 120
        )
        yield master
    finally:
        for process in processes:
            process.kill()
            process.wait()


def daemon(folder: Path, name: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """One of Spark's own processes, in its own folder."""
    import pyspark

    folder.mkdir(exist_ok=True)
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*prefix, program, f"org.apache.spark.deploy.{name}", *arguments], cwd=folder, stdout=log, stderr=log
        )
