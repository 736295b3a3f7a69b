"""Vacuums the table of messages while it has few live rows and many dead ones.

Each message leaves two dead rows, and autovacuum looks once a minute at best: at 1,000 messages a second a table of a
few rows would grow by some ten megabytes in between, and everybody who reads its indexes pays for that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    from django_pgqueue.consumer.background import Connect

JOBS_BETWEEN = 2_500
"""A process asks for dead rows after this many jobs of its own."""
MIN_DEAD = 4_000
MAX_LIVE = 10_000
"""A table with more rows is left to autovacuum."""
OLD_SECONDS = 5
"""Nothing is removed while a transaction this old may still see the dead rows."""
MIN_SECONDS, MAX_SECONDS = 2.0, 60.0
MAX_SHARE = 0.05
"""Vacuum takes at most this share of the time."""
STALE_SECONDS = 0.6
"""Before PostgreSQL 15, what a session reads of the statistics may be half a second old."""

# Vacuum looks at the snapshots of its own database.  But each of these reaches back to the oldest transaction of all
# databases that has written, so in a database that is never idle such a transaction counts as well.  Vacuum passes over
# vacuums, and over what decodes changes; not over a subscriber's first copy of a table, whose ``xact_start`` is null.
HOLDS = """(a.backend_xid is not null or a.backend_xmin is not null and a.datname = current_database())
  and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
  and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
  and not exists (select from pg_stat_replication r where r.pid = a.pid and r.state <> 'startup')"""
"""Whether a row ``a`` of ``pg_stat_activity`` can keep dead rows of this database."""

TABLE = f"""
select s.n_dead_tup, s.n_live_tup, s.vacuum_count, exists (
    select from pg_stat_activity a
    where {HOLDS}
      and coalesce(a.xact_start, a.state_change) < clock_timestamp() - %s * interval '1 second'
)
from pg_stat_all_tables s where s.relid = to_regclass('pgqueue_message')
"""  # noqa: S608 -- a constant
# It waits for no lock and takes none that stops others.
VACUUM = "vacuum (skip_locked, truncate false) pgqueue_message"


class Vacuum:
    """Runs in the thread of a ``Background``.  The process's thread counts the jobs."""

    name = "vacuum"
    max_again_seconds = MAX_SECONDS

    def __init__(self) -> None:
        self.jobs = 0
        """Jobs since the last look."""
        self.next_at = 0.0
        self._pause_seconds = MIN_SECONDS

    def due_at(self) -> float:
        return self.next_at if self.jobs >= JOBS_BETWEEN else float("inf")

    def do(self, connect: Connect) -> None:
        jobs = self.jobs
        self.next_at = time.monotonic() + MIN_SECONDS
        self._look(connect().connection)
        self.jobs -= jobs  # only now: after an error it is due again

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        dead, live, before, is_seen = _table(connection)
        if dead < MIN_DEAD or live > MAX_LIVE or is_seen:
            return
        began = time.monotonic()
        connection.execute(VACUUM)
        now = time.monotonic()
        if connection.info.server_version < 150000:
            time.sleep(STALE_SECONDS)
        left, _, after, _ = _table(connection)
        # Without the right to vacuum, while another session does, or where an old snapshot still needs the rows.
        is_vain = after == before or left > dead / 2
        self._pause_seconds = min(MAX_SECONDS, 2 * self._pause_seconds) if is_vain else MIN_SECONDS
        self.next_at = now + max(self._pause_seconds, (now - began) / MAX_SHARE)


def _table(connection: psycopg.Connection[Any]) -> tuple[int, int, int, bool]:
    """Returns the dead and the live rows, how often the table was vacuumed by hand, and whether an old transaction may
    still see dead rows.
    """
    row = connection.execute(TABLE, (OLD_SECONDS,)).fetchone()
    return (0, 0, 0, False) if row is None else (row[0], row[1], row[2], row[3])
