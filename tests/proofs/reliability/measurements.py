"""What is measured while all is calm: how soon work goes on after a kill and after a restart, and the second look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, connection, transaction

from tests.proofs.reliability import tasks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

    from tests.proofs.reliability.storm import Storm

SECONDS = 60.0


def worker_kill(storm: Storm) -> float:
    """From SIGKILL to the beginning of the next attempt."""
    with storm.enqueuing() as remember, transaction.atomic():
        token = storm.new_token()
        result = tasks.wait_for_the_end.enqueue(token)
        remember(token, result)
    with storm.server.connect() as admin:
        query = "select worker from pgqueue_message where id = %s and worker is not null"
        holder = answer(admin, query, [result.id], "the job begins")
        wait_until(lambda: f" {result.id} 1 {holder} " in storm.diary(), "the task runs", SECONDS)
        pid = int(holder.split("-")[-2])
        worker = next(each for each in storm.workers.all if pid in each.processes)
        began = time.monotonic()
        worker.kill()
        wait_until(lambda: f" {result.id} 2 " in storm.diary(), "the job begins again", SECONDS)
    return time.monotonic() - began


def server_restart(storm: Storm) -> float:
    """From the start of PostgreSQL to the end of the next job."""
    storm.server.crash()
    storm.server.heal()
    began = time.monotonic()
    while True:
        try:
            connection.close()
            token = storm.new_token()
            with storm.enqueuing() as remember, transaction.atomic():
                result = tasks.glance.enqueue(token)
                remember(token, result)
            break
        except OperationalError:
            time.sleep(0.01)
    with storm.server.connect() as admin:
        query = "select 1 from pgqueue_attempt where message_id = %s and final"
        wait_until(lambda: admin.execute(query, [result.id]).fetchone(), "the job ends", SECONDS)
    return time.monotonic() - began


def second_look(storm: Storm, *, open_seconds: float) -> float | None:
    """Enqueues while a worker is just registering as a sleeper, and returns how long the message waited after the
    commit, which comes ``open_seconds`` later.

    The storm's database makes that take 0.2 s (tables.sql): whoever enqueues meanwhile sees no sleeper to notify.
    """
    registering = "select 1 from pg_stat_activity where wait_event = 'PgSleep' and usename = 'storm'"
    with storm.server.connect() as admin:
        # Not one that renews its registration: it has slept before.  With few jobs it sleeps on.
        awake = "select 1 from pgqueue_worker where queues = '{probe}' and asleep_until is null"
        give_up_at = time.monotonic() + SECONDS
        while not admin.execute(awake).fetchone():
            assert time.monotonic() < give_up_at, "the probe's worker does not wake up"
            with storm.enqueuing() as remember, transaction.atomic():
                token = storm.new_token()
                remember(token, tasks.glance.using(queue_name="probe").enqueue(token))
        wait_until(lambda: admin.execute(registering).fetchone(), "the probe's worker falls asleep", SECONDS)
        with storm.enqueuing() as remember, transaction.atomic():
            token = storm.new_token()
            result = tasks.glance.using(queue_name="probe").enqueue(token)
            remember(token, result)
            was_early = admin.execute(registering).fetchone()
            time.sleep(open_seconds)
        committed_at = time.time()
        if not was_early:
            return None  # it was asleep, and perhaps notified
        query = (
            "select extract(epoch from l.at)::float8 from storm_change l "
            "where l.message_id = %s and l.op = 'U' and l.worker is not null"
        )
        return float(answer(admin, query, [result.id], "the probe runs")) - committed_at


def answer(admin: psycopg.Connection[Any], query: str, parameters: list[Any], what: str) -> Any:
    """The first value, as soon as there is one."""
    found = wait_until(lambda: admin.execute(query.encode(), parameters).fetchone(), what, SECONDS)
    return found[0] if found else None
