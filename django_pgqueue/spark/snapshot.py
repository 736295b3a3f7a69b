"""The rows of the history that a read sees: those of transactions that had ended when Spark planned the read.

Every row has the id of the transaction that wrote it.  All tasks of a read cut the history at the same transactions,
whenever and however often they run.  So they see one moment, and no transaction has to stay open between them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from psycopg import sql

from django_pgqueue.spark.errors import DatabaseUnavailable, HistoryReplaced

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

TAKEN = """
    select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
           array(select x::text::bigint from pg_snapshot_xip(s) as x), pg_is_in_recovery()
    from pg_current_snapshot() as s
"""
# Uses the block range index, whatever the statistics say: a sequential scan would read the whole history.
BY_INDEX = "set local enable_seqscan = off"
DURABLE = "select set_config('synchronous_commit', 'local', true) where current_setting('synchronous_commit') = 'off'"
WRITTEN = "select pg_logical_emit_message(true, 'pgqueue', '') where not pg_is_in_recovery()"
BEHIND = "select 1 where pg_snapshot_xmin(pg_current_snapshot())::text::bigint < {}"
REPLICA_BEHIND = f"{BEHIND} and pg_is_in_recovery()"
LATER = "select exists (select from pgqueue_attempt where transaction_id >= %s)"
RESTORED = (
    "The history has rows of transactions that this server has not reached (it is at {end}): the history was restored "
    "from a dump. Mark these rows as old, once:  update pgqueue_attempt set transaction_id = 0 where transaction_id "
    ">= {end};"
)

LATE = (
    "The replica has not reached transaction {number} within {seconds} seconds, up to which another connection to it "
    "has seen the history, or which toTransaction names: it is behind, or an older transaction is still open on its "
    "primary. Run this again later; a stream goes on with the same checkpoint. If that does not help, its primary was "
    "restored, or is another server: a stream begins anew there, with a new checkpoint."
)
PATIENCE_SECONDS = 30
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The transactions that had ended: all before ``horizon``, and all before ``end`` except the ``running`` ones."""

    horizon: int
    end: int
    running: tuple[int, ...] = ()

    @classmethod
    def taken(cls, connection: psycopg.Connection) -> Self:
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            connection.execute(BY_INDEX)
            row = connection.execute(TAKEN).fetchone()
            assert row is not None  # noqa: S101 -- for the type checker: it is one row
            horizon, end, running, replica = row
            if connection.execute(LATER, [end]).fetchone() == (True,):
                # On the server that wrote it, every visible row is of a transaction before the end.
                raise HistoryReplaced(RESTORED.format(end=end))
        # A replica does not know which transactions run, only the oldest.
        return cls(horizon=horizon, end=horizon) if replica else cls(horizon=horizon, end=end, running=tuple(running))

    def condition(self) -> sql.Composable:
        if not self.running:
            return sql.SQL("transaction_id < {}").format(self.end)
        return sql.SQL(
            "(transaction_id < {horizon} or transaction_id < {end} and transaction_id <> all({running}::bigint[]))"
        ).format(horizon=self.horizon, end=self.end, running=list(self.running))


def horizon(connection: psycopg.Connection) -> int:
    """Returns the oldest transaction that still runs, in any database of the server: no row can appear before it, not
    even after a crash of the server.
    """
    found = Snapshot.taken(connection).horizon
    make_durable(connection)
    return found


def make_durable(connection: psycopg.Connection) -> None:
    """Waits until the disk has all transactions that have ended, those with ``synchronous_commit`` off too.  A server
    that crashes without them uses their ids again: what follows the history is past them, and would never read the
    rows.  A replica has only what is on its primary's disk.  A synchronous standby is waited for only where the
    commits of this login do so.
    """
    with connection.transaction():
        connection.execute(DURABLE)
        connection.execute(WRITTEN)


def catch_up(is_behind: Callable[[], bool], number: int) -> None:
    """Waits until a replica has all transactions before ``number``.  Several replicas may be behind one address, and
    one that begins again may first show less than before: rows that they do not have yet would be missing.
    """
    due = time.monotonic() + PATIENCE_SECONDS
    while is_behind():
        if time.monotonic() > due:
            raise DatabaseUnavailable(LATE.format(number=number, seconds=PATIENCE_SECONDS))
        time.sleep(LOOK_SECONDS)
