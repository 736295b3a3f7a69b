"""What some work cost: CPU seconds of the worker and of PostgreSQL, write-ahead log, commits, dead rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench import processes

if TYPE_CHECKING:
    import psycopg

COUNTERS = """
select (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn),
       (select xact_commit from pg_stat_database where datname = current_database()),
       (select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables)
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one job.  None: not known here, such as the CPU of a server on another machine."""

    worker_us: float | None
    server_us: float | None
    wal_bytes: float
    commits: float
    dead_rows: float


@dataclass(frozen=True, slots=True)
class Reading:
    at: float
    wal_bytes: int
    commits: int
    dead_rows: int
    server: float | None
    worker: float | None


class Meter:
    """Reads before and after; ``costs`` are the difference for each job.

    PostgreSQL's sessions tell their commits and rows with a delay of up to a second, or when they end: so read the
    counters last, when the workers have gone.
    """

    def __init__(self, connection: psycopg.Connection[Any], worker: int | None = None) -> None:
        self.connection = connection
        self.worker = worker
        self.postmaster = processes.postmaster(connection.info.backend_pid) if is_local(connection) else None
        self._before = self.read()
        self._cpu: tuple[float | None, float | None] | None = None

    def read(self) -> Reading:
        if self.connection.info.server_version >= 150000:  # what this session did itself
            self.connection.execute("select pg_stat_force_next_flush()")
        self.connection.execute("select pg_stat_clear_snapshot()")
        row = self.connection.execute(COUNTERS).fetchone()
        assert row is not None
        wal, commits, dead = (int(value) for value in row)
        return Reading(time.perf_counter(), wal, commits, dead, *self.cpu())

    def cpu(self) -> tuple[float | None, float | None]:
        return processes.cpu_seconds(self.postmaster), processes.cpu_seconds(self.worker)

    def stop(self) -> None:
        """CPU is counted up to here: what comes is the worker's way out."""
        self._cpu = self.cpu()

    def costs(self, jobs: int) -> Costs:
        before, after = self._before, self.read()
        server, worker = self._cpu or (after.server, after.worker)
        return Costs(
            worker_us=per_job(before.worker, worker, jobs),
            server_us=per_job(before.server, server, jobs),
            wal_bytes=(after.wal_bytes - before.wal_bytes) / jobs,
            commits=max(0, after.commits - before.commits - 3) / jobs,  # three are of the readings
            dead_rows=(after.dead_rows - before.dead_rows) / jobs,
        )


def per_job(before: float | None, after: float | None, jobs: int) -> float | None:
    return None if before is None or after is None else (after - before) / jobs * 1e6


def is_local(connection: psycopg.Connection[Any]) -> bool:
    """On another machine a process of the same number would be somebody else's."""
    host = connection.info.host
    return host.startswith("/") or host in {"", "localhost", "127.0.0.1", "::1"}
