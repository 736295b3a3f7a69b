"""A lake, and the database where ``manage.py qpipeline`` would say that it is."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.request import Request, urlopen

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue.management.commands.qpipeline import VARIABLE
from tests.support.pages import ROOT
from tests.support.sessions import end_one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.sessions import Session

BUCKET = "history"
ELSEWHERE = """
    select exists (
        select from pg_stat_activity
        where datname is distinct from current_database() and age(backend_xid) >= age(%s::text::xid))
"""


@pytest.fixture
def options(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setenv(VARIABLE, url)
    yield {"urlVariable": VARIABLE}
    with psycopg.connect(url, autocommit=True) as connection:  # retention would wait for the lakes of tests
        connection.execute("delete from pgqueue_lake")


def url_without_password(conninfo: str, folder: Path, port: int | None = None) -> str:
    """The test database, as the option url has it: the password is in a file.  More parameters may follow."""
    at: dict[str, Any] = conninfo_to_dict(conninfo)
    secret = folder / "pgpass"
    secret.write_text(f"*:*:*:*:{at['password']}\n")
    secret.chmod(0o600)
    return f"postgresql://{at['user']}@{at['host']}:{port or at.get('port') or 5432}/{at['dbname']}?passfile={secret}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


class Add(Protocol):
    def __call__(self, session: Session, lake: Path | str, number: int = 1) -> None: ...


@pytest.fixture
def add(spark: SparkSession, options: dict[str, str]) -> Add:
    """Ends so many attempts, and exports them into a lake."""
    from django_pgqueue.spark.pipeline import export

    def add(session: Session, lake: Path | str, number: int = 1) -> None:
        ended(session, number)
        export(spark, lake, options=options)

    return add


def ended(session: Session, number: int = 1) -> None:
    """Ends so many attempts, each in a transaction of its own, and waits until they can be exported."""
    for _ in range(number):
        end_one(session)
    settled(session)


def settled(session: Session) -> None:
    """Waits for transactions in other databases of the server, which hold up the horizon: tests may share a server."""
    mark = session.one("select (pg_current_xact_id()::xid)::text")
    wait_until(lambda: not session.one(ELSEWHERE, [mark]), "transactions elsewhere have ended", 100)


@contextmanager
def served(module: str, folder: Path, *arguments: str) -> Iterator[str]:
    """Runs a store with a bucket, and yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, str(port)], stdout=log, stderr=log, cwd=ROOT
        )
    address = f"http://127.0.0.1:{port}"

    def is_there() -> bool:
        try:
            urlopen(Request(f"{address}/{BUCKET}", data=b"", method="PUT")).close()  # noqa: S310 -- made above
        except OSError:
            return False
        return True

    try:
        wait_until(is_there, "the store answers", 60)
        yield address
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """S3 as moto's server has it: what the environment says about it."""
    with served("moto.server", tmp_path_factory.mktemp("store"), "-H", "127.0.0.1", "-p") as address:
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-central-1",
            "AWS_ALLOW_HTTP": "true",
        }
