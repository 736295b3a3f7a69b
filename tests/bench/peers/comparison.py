"""Each peer does the same work in the same run: enqueue, drain by one and two processes, pick-up, scheduled ahead."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL, Identifier

from tests.bench import database, processes
from tests.bench.figures import percentile
from tests.bench.meter import Meter
from tests.bench.peers import redis
from tests.bench.peers.catalogue import PEERS, Entry
from tests.bench.peers.environment import Environment, Unavailable
from tests.bench.pickup import SHARES
from tests.bench.workers import tallied, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.bench import Bench
    from tests.bench.tally import Tally

DATABASE = "pgqueue_bench_peer"
START_SECONDS = 40.0
DRAIN_SECONDS = 30.0
"""A slow peer is measured by what it did until then."""
GAP_SECONDS = 0.05
STEPS = 3
"""Of a workflow: each returns a number."""


def compare(bench: Bench) -> None:
    for entry in [PEERS[name] for name in bench.peers] or PEERS.values():
        try:
            with prepared(entry, bench) as peer:
                measure(bench, peer)
        except (Unavailable, TimeoutError, psycopg.Error) as error:
            bench.figures.note(f"{entry.name}: {error}")


@contextmanager
def prepared(entry: Entry, bench: Bench, **variables: str) -> Iterator[Peer]:
    environment = Environment(entry, variables)
    environment.prepare()
    with ExitStack() as stack:
        address = database.url().rpartition("/")[0] + "/" + DATABASE
        environment.variables["DATABASE_URL"] = address
        renew_database()
        server = None
        if entry.redis:
            environment.variables["REDIS_URL"], server = stack.enter_context(redis.server())
        peer = Peer(entry, environment, address, server)
        bench.figures.note(f"{entry.name} {environment.version()}: {environment.call('configuration')}")
        yield peer


def compare_workflows(bench: Bench) -> None:
    """Jobs of three steps, by each of those that record steps."""
    for entry in [
        entry for entry in PEERS.values() if entry.steps and (not bench.peers or entry.module in bench.peers)
    ]:
        try:
            with prepared(entry, bench, PGQUEUE_BENCH_STEPS=str(STEPS)) as peer:
                peer.renew()
                peer.environment.call("fill", bench.sizes.workflows)
                peer.drain(bench, f"{entry.name}: workflows", 1, jobs=bench.sizes.workflows)
        except (Unavailable, TimeoutError, psycopg.Error) as error:
            bench.figures.note(f"{entry.name}: {error}")


def measure(bench: Bench, peer: Peer) -> None:
    sizes, name = bench.sizes, peer.entry.name
    peer.renew()
    if isinstance(rate := peer.environment.call("one_by_one", sizes.enqueue_seconds), float):
        bench.rate(f"{name}: enqueue one by one", rate)
    for count in (1, 2):
        peer.renew()
        seconds = peer.environment.call("fill", sizes.peer_jobs)
        if count == 1:
            bench.rate(f"{name}: bulk enqueue", sizes.peer_jobs / seconds)
        words = "1 process" if count == 1 else f"{count} processes"
        peer.drain(bench, f"{name}: drain, {words}", count)
    peer.renew()
    add_pick_up(bench, peer)
    if not peer.entry.redis and peer.renew() and peer.environment.call("ahead", sizes.peer_ahead) is None:
        peer.environment.call("fill", sizes.peer_jobs)
        name_of_limit = f"{name}: drain, 1 process"
        peer.drain(bench, f"{name}: drain, {sizes.peer_ahead:,} scheduled ahead", 1, limit=name_of_limit)


def add_pick_up(bench: Bench, peer: Peer) -> None:
    count = bench.sizes.pick_ups
    with tallied(marks=count) as tally, peer.working(1):
        peer.environment.call("fill", 1, count + 1)  # has no mark: when it has run, the worker is there
        wait_for(lambda: tally.count > 0, "the worker", seconds=START_SECONDS)
        committed = peer.environment.call("singly", count, GAP_SECONDS)
        wait_for(lambda: tally.count > count, "the last jobs", seconds=START_SECONDS)
        waits = [(began - at) / 1e6 for began, at in zip(tally.marks(), committed, strict=True)]
    for word, share in SHARES.items():
        bench.add(f"{peer.entry.name}: pick-up {word}", percentile(waits, share), "ms")


class Peer:
    def __init__(self, entry: Entry, environment: Environment, address: str, redis_server: int | None) -> None:
        self.entry = entry
        self.environment = environment
        self.address = address
        self.redis_server = redis_server

    def renew(self) -> bool:
        """Nothing is left of what was measured before."""
        if self.redis_server is None:
            renew_database()
            self.environment.call("install")
            database.checkpoint()
        else:
            redis.flush(self.environment.variables["REDIS_URL"])
        return True

    @contextmanager
    def working(self, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        commands: list[list[str]] = self.environment.call("workers", count)
        environment = self.environment.process_environment
        with ExitStack() as stack:
            started = []
            for words in commands:
                # A session of its own: whatever it starts is ended with it.
                process = subprocess.Popen(
                    words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                stack.callback(end, process)
                started.append(process)
            yield started

    def drain(self, bench: Bench, name: str, count: int, *, jobs: int | None = None, limit: str | None = None) -> None:
        """From a tenth of the jobs on: what it takes to start is not measured."""
        jobs = jobs or bench.sizes.peer_jobs
        with psycopg.connect(self.address, autocommit=True) as connection, tallied() as tally:
            connection.execute("vacuum analyze")
            with self.working(count) as started:
                wait_for(lambda: tally.count >= jobs // 10, f"{name} to start", seconds=START_SECONDS)
                begun, before = time.monotonic_ns(), tally.count
                cpu = self.cpu(started)
                meter = Meter(connection)
                watch(tally, jobs)
                meter.stop()
                used = [after - earlier for after, earlier in zip(self.cpu(started), cpu, strict=True)]
                done, seconds = tally.count - before, (tally.last - begun) / 1e9
            costs = meter.costs(max(1, done))
            if done < jobs - before:
                bench.figures.note(f"{name}: {tally.count:,} of {jobs:,} jobs ran in {DRAIN_SECONDS:g} seconds")
            bench.rate(name, done / seconds, limit=limit, costs=with_worker(costs, used, done))

    def cpu(self, started: list[subprocess.Popen[bytes]]) -> list[float]:
        """Of the workers, and of Redis."""
        pids = [process.pid for process in started]
        return [sum(processes.cpu_seconds(pid) or 0.0 for pid in pids), processes.cpu_seconds(self.redis_server) or 0.0]


def renew_database() -> None:
    with psycopg.connect(database.url(), autocommit=True) as connection:
        connection.execute(SQL("drop database if exists {} with (force)").format(Identifier(DATABASE)))
        connection.execute(SQL("create database {}").format(Identifier(DATABASE)))


def with_worker(costs: Any, used: list[float], jobs: int) -> Any:
    jobs = max(1, jobs)
    server = used[1] / jobs * 1e6 if used[1] else costs.server_us
    return replace(costs, worker_us=used[0] / jobs * 1e6, server_us=server)


def watch(tally: Tally, jobs: int) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while tally.count < jobs and time.monotonic() < deadline:
        time.sleep(0.005)


def end(process: subprocess.Popen[bytes]) -> None:
    """Politely, and then with all that it has started."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
