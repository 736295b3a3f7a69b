"""A second queue, in another schema of the same database: what it does is its own affair."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions import sql_files
from tests.proofs.reliability.faults.fault import Skipped, fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

SCHEMA = "other"
KEPT = (
    "select pgqueue_channel_set('c0', 1)",
    "select pgqueue_message_lock_keys('tests.proofs.reliability.tasks.alone', true)",
    "select pgqueue_attempt_maintain()",
    "select pgqueue_message_await_turn()",
    "lock table pgqueue_message, pgqueue_attempt, pgqueue_worker, pgqueue_channel in access exclusive mode",
)
"""Under the names of channels and tasks that the first one has, too."""


@fault("another installation keeps all its locks", "database")
def keep(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    install(storm)
    seconds = chooser.choice((0.5, 3.0))
    with storm.server.when_there() as admin, admin.transaction(force_rollback=True):
        admin.execute(f"set local search_path = {SCHEMA}".encode())
        for statement in KEPT:
            admin.execute(statement.encode())
        time.sleep(seconds)
    return {"seconds": seconds}


def install(storm: Storm) -> None:
    """On first use, and again where a server that went away has left nothing of it."""
    with storm.server.when_there() as admin:
        if admin.execute(f"select to_regclass('{SCHEMA}.pgqueue_message')".encode()).fetchone() != (None,):
            return
        admin.execute(f"create schema if not exists {SCHEMA}".encode())
    psql = shutil.which("psql")
    if psql is None:
        message = "there is no psql, which sql/install.sql is for"
        raise Skipped(message)
    address = ["-h", "127.0.0.1", "-p", str(storm.server.primary.port), "-U", "pgqueue", "-d", "storm"]
    command = [psql, "-X", "-q", *address, "-f", str(sql_files.folder() / "install.sql")]
    variables = {"PGPASSWORD": storm.server.password, "PGOPTIONS": f"-c search_path={SCHEMA}"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"install.sql: {done.stderr[-300:]}"
        raise RuntimeError(message)
