"""A standby takes over: one that has all transactions, and one that lacks the latest and gives their ids again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.diary import FOLDER, Diary
from tests.support.fixtures.servers import server
from tests.support.processes import ROOT, QWorker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.server import Server

__all__ = ["server"]

SEQUENCE = "pg_get_serial_sequence('pgqueue_message', 'id')"


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> dict[str, str]:
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.worker.standby_settings",
        "STORM_PORTS": ",".join(map(str, server.ports)),
        "STORM_PASSWORD": server.password,
        FOLDER: str(tmp_path),
    }
    subprocess.run([sys.executable, "-m", "tests.support.site.manage", "migrate"], cwd=ROOT, env=variables, check=True)
    return variables


def enqueue(admin: psycopg.Connection[Any], word: str) -> int:
    [message_id] = admin.execute(
        "select pgqueue_message_create(%s, p_task => 'tests.support.site.tasks.hold')",
        [json.dumps({"args": [word], "kwargs": {}})],
    ).fetchone() or [0]
    return int(message_id)


@pytest.mark.slow
def test_jobs_go_on_after_a_promotion_and_no_replicated_one_is_lost(
    server: Server, environment: dict[str, str], tmp_path: Path
) -> None:
    """Each commit waits for the standby.  The worker has both addresses, and takes the one that can be written to."""
    diary = Diary(tmp_path)
    standby = server.standby()
    worker = QWorker(("--threads", "2", "--lock-seconds", "2"), environment=environment, output=tmp_path / "worker")
    try:
        worker.says("started worker=")
        words = [f"held {number}" for number in range(2)] + [f"waits {number}" for number in range(20)]
        with server.connect() as admin:
            ids = [enqueue(admin, word) for word in words]
            wait_until(lambda: {"held 0", "held 1"} <= set(diary.words()), "the slots are full")
        server.fail_over(standby)
        worker.says("the connection leads to another server or database, or the server was restarted")
        for word in words:
            for attempt in range(1, 4):
                diary.allow(f"{word}-{attempt}")
        with server.when_there() as admin:
            ids.append(enqueue(admin, "after it"))
            diary.allow("after it-1")
            wait_until(lambda: admin.execute("select from pgqueue_message").fetchone() is None, "all have ended", 120)
            history = admin.execute(
                "select message_id, status from pgqueue_attempt where final order by message_id"
            ).fetchall()
        assert history == [(message_id, "succeeded") for message_id in sorted(ids)]
        assert set(diary.words()) == {*words, "after it"}
        assert worker.stop() == 0
    finally:
        worker.kill()


@pytest.mark.slow
def test_a_job_with_a_reused_id_is_a_new_job(server: Server, environment: dict[str, str], tmp_path: Path) -> None:
    diary = Diary(tmp_path)
    standby = server.standby()
    worker = QWorker(("--threads", "2"), environment=environment, output=tmp_path / "worker")
    try:
        worker.says("started worker=")
        with server.connect() as admin, server.connect(node=standby) as follower:
            admin.execute("alter system set synchronous_standby_names = ''")
            follower.execute("alter system set primary_conninfo = ''")
            for session in (admin, follower):
                session.execute("select pg_reload_conf()")
            wait_until(
                lambda: admin.execute("select from pg_stat_replication").fetchone() is None, "the standby is cut off"
            )
            admin.execute(f"select nextval({SEQUENCE}) from generate_series(1, 100)")  # more than it reserves at a time
            message_id = enqueue(admin, "old")
            wait_until(lambda: "old" in diary.words(), "the job runs")
        server.fail_over(standby)
        worker.says("the connection leads to another server or database, or the server was restarted")
        with server.when_there() as admin:
            while (admin.execute(f"select nextval({SEQUENCE})").fetchone() or [0])[0] < message_id - 1:
                pass
            assert enqueue(admin, "new") == message_id
            wait_until(lambda: "new" in diary.words(), "the new job runs")
            diary.allow("old-1")
            worker.says(f"lost id={message_id} attempt=1")
            assert admin.execute("select attempt, worker is null from pgqueue_message").fetchall() == [(1, False)]
            diary.allow("new-1")
            wait_until(lambda: admin.execute("select from pgqueue_message").fetchone() is None, "it has ended")
            history = admin.execute(
                "select message_id, status, content -> 'args' ->> 0 from pgqueue_attempt"
            ).fetchall()
        assert history == [(message_id, "succeeded", "new")]
        assert worker.stop() == 0
    finally:
        worker.kill()
