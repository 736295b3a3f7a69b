"""A restart of the server ends all sessions at once: that makes no worker look dead, and no job run without end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.diary import FOLDER, Diary
from tests.support.fixtures.servers import server
from tests.support.pgbouncer import MISSING, PROGRAM, Pooler
from tests.support.processes import ROOT, QWorker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server import Server

__all__ = ["server"]

pytestmark = pytest.mark.slow

WORDS = ("one", "two")
EXPIRE = "select pgqueue_worker_expire(0, p_return_ms => 600000)"
"""A look that takes everybody for missed, and the server for a young one: however slow this machine is."""
SEEN = "select count(*) from pgqueue_worker where seen_at > %s and server_started_at is not null"


def migrated(server: Server, folder: Path) -> dict[str, str]:
    """The environment of workers of a server that now has a queue."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.worker.standby_settings",
        "STORM_PORTS": ",".join(map(str, server.ports)),
        "STORM_PASSWORD": server.password,
        FOLDER: str(folder),
    }
    command = [sys.executable, "-m", "tests.support.site.manage", "migrate"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return environment


class Site:
    """A server, and two workers that hold a job each."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.diary = Diary(folder)
        environment = migrated(server, folder)
        self.workers = [
            QWorker(("--threads", "1"), environment=environment, output=folder / f"worker {word}") for word in WORDS
        ]

    def hold(self) -> None:
        with self.server.connect() as admin:
            for word in WORDS:
                content = json.dumps({"args": [word], "kwargs": {}})
                admin.execute("select pgqueue_message_create(%s, p_task => 'tests.support.site.tasks.hold')", [content])
            wait_until(lambda: set(self.diary.words()) == set(WORDS), "both jobs run")
            # Nothing is taken over because its lock has run out.
            admin.execute("update pgqueue_message set unlock_at = unlock_at + 36000000")
            workers = admin.execute("select count(distinct worker) from pgqueue_message").fetchone()
            assert workers == (2,)

    def go_on(self, admin: psycopg.Connection[Any]) -> None:
        """The workers come back, and nobody has lost its job."""
        began = admin.execute("select clock_timestamp()").fetchone() or ()
        assert admin.execute(EXPIRE).fetchone() == (0,)
        wait_until(lambda: admin.execute(SEEN, began).fetchone() == (2,), "both have registered again")
        assert admin.execute(EXPIRE).fetchone() == (0,)
        for word in WORDS:
            self.diary.allow(f"{word}-1")
        wait_until(lambda: admin.execute("select from pgqueue_message").fetchone() is None, "both jobs have ended")
        ends = admin.execute("select status, attempt from pgqueue_attempt").fetchall()
        assert ends == [("succeeded", 1)] * 2
        assert sorted(self.diary.words()) == sorted(WORDS)


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    site = Site(server, tmp_path)
    try:
        site.hold()
        yield site
    finally:
        for worker in site.workers:
            worker.kill()


def test_a_restart_of_the_server_makes_no_worker_look_dead(site: Site) -> None:
    site.server.crash()
    site.server.heal()
    with site.server.when_there() as admin:
        site.go_on(admin)


def test_a_crash_of_a_server_process_makes_no_worker_look_dead(site: Site) -> None:
    """The server goes on, and restarts all its processes."""
    facts = "select pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()"
    with site.server.connect() as admin:
        started, reset = admin.execute(facts).fetchone() or (None, None)
        os.kill(admin.info.backend_pid, signal.SIGKILL)

    def restarted() -> bool:
        with site.server.when_there() as admin:
            now = admin.execute(facts).fetchone() or (None, None)
        assert now[0] == started
        return now[1] is not None and (reset is None or now[1] > reset)

    wait_until(restarted, "the statistics were thrown away")
    with site.server.when_there() as admin:
        site.go_on(admin)


def forgetful(server: Server) -> None:
    """What does not wait for the disk is lost by a crash."""
    with server.connect() as admin:
        admin.execute("alter system set wal_writer_delay = '10s'")
        admin.execute("select pg_reload_conf()")


@pytest.mark.parametrize(
    "pooled", [False, pytest.param(True, marks=pytest.mark.skipif(PROGRAM is None, reason=MISSING))]
)
def test_a_job_that_crashes_the_server_at_once_does_so_a_few_times_only(
    server: Server, tmp_path: Path, pooled: bool
) -> None:
    """Each crash took the claim along, which no disk had seen: no attempt was ever used up.  Behind a pooler a worker
    need not notice the crash.
    """
    environment = migrated(server, tmp_path)
    forgetful(server)
    with contextlib.ExitStack() as after:
        if pooled:
            pooler = Pooler(server.folder, server.account, password=server.password, upstream=server.primary.port)
            pooler.start()
            after.callback(pooler.end, signal.SIGKILL)
            environment |= {"STORM_PORTS": str(pooler.port), "STORM_SESSIONS": "any", "STORM_POOLED": "1"}
            environment["PGQUEUE_TEST_OPTIONS"] = json.dumps({"LISTEN": False})
        worker = QWorker(("--threads", "1"), environment=environment, output=tmp_path / "worker")
        after.callback(worker.kill)
        with server.connect() as admin:
            call = """'{"args": [], "kwargs": {}}', p_task => 'tests.support.site.tasks.crash_the_server'"""
            admin.execute(f"select pgqueue_message_create({call}, p_max_attempts => 3)".encode())

        def has_ended() -> bool:
            with contextlib.suppress(psycopg.OperationalError), server.when_there() as admin:
                return admin.execute("select from pgqueue_message").fetchone() is None
            return False

        wait_until(has_ended, "the job has failed")
        with server.when_there() as admin:
            ends = admin.execute("select status, attempt from pgqueue_attempt order by attempt").fetchall()
        assert ends == [("retried", 1), ("retried", 2), ("failed", 3)]
        assert len(Diary(tmp_path).words()) <= 4, "the first time it may be as if nobody had claimed it"


LISTEN = """
import os, signal, time

import django

django.setup()
from django.db import OperationalError, connection

from django_pgqueue import Queue
from django_pgqueue.exceptions import PgQueueError


def crash(message):
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        os.kill(cursor.fetchone()[0], signal.SIGKILL)
        cursor.execute("select 1")


with Queue("raw").listen() as messages:
    for number, message in enumerate(messages):
        print(message.attempt, flush=True)
        do = crash
        while True:
            try:
                do(message)
                break
            except OperationalError:
                connection.close()
                do = lambda message: message.nack(error="the server has crashed")
                time.sleep(0.1)
            except PgQueueError:  # the crash took the claim along
                break
        if number == 5 or message.attempt == 3:
            break
"""


def test_a_message_that_crashes_the_server_at_once_uses_its_attempts_up(server: Server, tmp_path: Path) -> None:
    """The same for who listens."""
    environment = migrated(server, tmp_path)
    forgetful(server)
    with server.connect() as admin:
        admin.execute("select pgqueue_message_create('{}', p_queue => 'raw', p_max_attempts => 3)")
    command = [sys.executable, "-c", LISTEN]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert [int(line) for line in done.stdout.split()][-3:] == [1, 2, 3]
