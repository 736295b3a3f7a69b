"""Logins with few rights, or none, that do what they are not refused."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue.functions import sql_files
from tests.proofs.reliability.faults.fault import Skipped, fault

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.proofs.reliability.storm import Storm

QUEUE = "hostile"
LATER = "extract(epoch from now() + interval '1 day') * 1000"
CREATE = "select pgqueue_message_create(%s, p_queue => %s, p_task => %s, p_priority => %s, p_max_attempts => %s)"
SPREAD = f"""
select pgqueue_message_create('{{}}', p_queue => '{QUEUE} ' || q, p_priority => p, p_task => 'no.such.task',
                              p_dequeue_at => ({LATER})::bigint)
from generate_series(1, 60) as q, generate_series(-20, 20) as p
"""
NAMES = ("", "x" * 300, "x" * 100_000, "line\nbreak", "\x1b[2J", "ä" * 200, QUEUE)
LOCKS = "select distinct classid, objid, objsubid from pg_locks where locktype = 'advisory'"


def login(storm: Storm, role: str) -> str:
    """A login of that role, made on first use."""
    name = f"hostile_{role}"
    with storm.server.when_there() as admin:
        if admin.execute("select to_regrole(%s)", [name]).fetchone() == (None,):
            if role != "nobody":
                grant(storm)
            admin.execute(f"create role {name} login password '{storm.server.password}'".encode())
            if role != "nobody":
                admin.execute(f"grant pgqueue_{role} to {name}".encode())
    return name


def grant(storm: Storm) -> None:
    psql = shutil.which("psql")
    if psql is None:
        message = "there is no psql, which sql/roles.sql is for"
        raise Skipped(message)
    address = ["-h", "127.0.0.1", "-p", str(storm.server.primary.port), "-U", "pgqueue", "-d", "storm"]
    command = [psql, "-X", "-q", *address, "-f", str(sql_files.folder() / "roles.sql")]
    password = {"PGPASSWORD": storm.server.password}
    done = subprocess.run(command, env=password, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"roles.sql: {done.stderr[-300:]}"
        raise RuntimeError(message)


def connect(storm: Storm, name: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1", port=storm.server.primary.port, user=name, password=storm.server.password, dbname="storm",
        autocommit=True, connect_timeout=5, options="-c statement_timeout=10s",
    )  # fmt: skip


def attempts(session: psycopg.Connection[Any], count: int, call: Callable[[], tuple[str, list[Any]]]) -> dict[str, int]:
    """Makes the calls, and counts how they ended."""
    ended: dict[str, int] = {}
    for _ in range(count):
        statement, parameters = call()
        try:
            session.execute(statement.encode(), parameters)
            how = "taken"
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            how = type(error).__name__
        ended[how] = ended.get(how, 0) + 1
    return ended


def tidy(storm: Storm) -> None:
    with storm.server.when_there() as admin:
        admin.execute(
            "select pgqueue_message_cancel(array(select id from pgqueue_message where queue like %s))", [f"{QUEUE}%"]
        )
        admin.execute("delete from pgqueue_worker where id like 'hostile%'")


@fault("hostile producer", "database", weight=2)
def produce(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    def call() -> tuple[str, list[Any]]:
        numbers = (0, 100, 101, -101, 32_767, 2_147_483_647, -2_147_483_648)
        queue = chooser.choice(NAMES)
        task = chooser.choice(("no.such.task", "os.abort", *NAMES))
        return CREATE, ["{}", queue, task, chooser.choice(numbers), chooser.choice((1, *numbers))]

    with connect(storm, login(storm, "producer")) as session:
        ended = attempts(session, 60, call)
        session.execute(SPREAD.encode())
        time.sleep(1)
    tidy(storm)
    return ended


@fault("hostile consumer", "database")
def consume(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Registers as many that sleep, and takes messages that it does not end."""

    def call() -> tuple[str, list[Any]]:
        name = chooser.choice(("hostile", "hostile" * 20, "hostile\nline", f"hostile {chooser.random()}"))
        slots, milliseconds = chooser.choice((1, -1, 2_147_483_647)), chooser.choice((1, 3000, 2**62))
        return (
            "select pgqueue_worker_seen(%s, null, %s, %s, 1, %s::integer, %s::bigint)",
            [name, [chooser.choice(NAMES)], chooser.choice(NAMES), slots, milliseconds],
        )

    with connect(storm, login(storm, "consumer")) as session:
        ended = attempts(session, 40, call)
        taken = session.execute(
            "select id from pgqueue_message_dequeue("
            "p_limit => 5, p_lock_ms => 1500, p_worker => 'hostile', p_tasks => true, "
            "p_exclude_queues => '{bystanders}')"
        ).fetchall()
        time.sleep(1)
    tidy(storm)
    return ended | {"messages that it took": len(taken)}


@fault("somebody without a role holds the advisory locks", "database")
def hold(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """All that it could see in use for a second."""
    seen: set[tuple[int, int, int]] = set()
    with connect(storm, login(storm, "nobody")) as session:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            seen |= set(session.execute(LOCKS).fetchall())
            time.sleep(0.01)
        for high, low, kind in seen:
            if kind == 1:
                session.execute("select pg_try_advisory_lock((%s::bigint << 32) | %s::bigint)", [high, low])
            else:
                session.execute("select pg_try_advisory_lock(%s, %s)", [signed(high), signed(low)])
        time.sleep(chooser.choice((1.0, 3.0)))
    return {"locks": len(seen)}


def signed(number: int) -> int:
    """pg_locks shows the 32 bits of an integer as those of an oid."""
    return number - 2**32 if number >= 2**31 else number
