"""The database that a lake comes from: its identity, and how far it can be read."""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue.spark import database
from django_pgqueue.spark.errors import DatabaseUnavailable, HistoryReplaced, SparkQueueError
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.schema import SQL_NAMES
from django_pgqueue.spark.session import same_environment
from django_pgqueue.spark.snapshot import BY_INDEX, LATER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django_pgqueue.spark.lake import Lake, Version

DATABASE = "select (select system_identifier from pg_control_system()) || '/' || current_database()"
SCHEMA = "select c.relnamespace::regnamespace::text from pg_class c where c.oid = to_regclass('pgqueue_message')"
TODAY = "select (pgqueue_clock() at time zone 'UTC')::date"
UNREAD = """
    select count(*), coalesce(extract(epoch from pgqueue_clock() - min(finished_at)), 0)
    from pgqueue_attempt where transaction_id >= %s
"""
# Every transaction that has written holds a lock on its own id, which any login may see; a prepared one has no session.
# Only the primary knows them.  Replication slots and standbys hold back vacuum, and not the snapshot that the horizon
# comes from.
HOLDER = """
    select l.pid, coalesce(nullif(a.application_name, ''), 'without a name'),
           coalesce(a.datname::text, p.database::text),
           extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::double precision,
           quote_literal(p.gid), p.owner::text
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts p on p.transaction = l.transactionid
    where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted and l.transactionid = %s::xid
"""
BEHIND = (
    "Finished attempts wait for transaction {number}, whose end this replica does not have yet. On the primary: select "
    "pid from pg_locks where locktype = 'transactionid' and transactionid = '{number}'. If that finds nothing, the "
    "replica is behind."
)
RECORDED = """
    select coalesce(l.position, 0), (l.exported_at at time zone 'UTC')::date
    from (select) as one left join pgqueue_lake l on l.id = %s
    where has_table_privilege('pgqueue_lake', 'insert') and not pg_is_in_recovery()
"""
HORIZON = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


class Origin:
    """The server that the history is read from."""

    def __init__(self, connection: psycopg.Connection, primary: str | None) -> None:
        self.connection = connection
        self.primary = primary
        """Where to connect to for what a replica does not know; None: ``connection`` is no replica's."""

    def database(self) -> str:
        """Returns what a lake that 0.1.0 has made calls its source."""
        return str(self._value(DATABASE))

    def identity(self) -> str:
        """Names the queue: a database has one in each of several schemas, whose ids and transactions look alike."""
        return f"{self.database()}/{self._value(SCHEMA)}"

    def require_queue(self) -> None:
        """Raises an error before a lake is made from a database that has no queue."""
        if not self._value("select to_regclass('pgqueue_attempt') is not null"):
            message = (
                f"The database {self._value('select current_database()')} has no queue in the search_path of this "
                "login, and nothing was written. Run manage.py migrate there, or name the database of the queue."
            )
            raise SparkQueueError(message)

    def today(self) -> dt.date:
        return dt.date.fromisoformat(str(self._value(TODAY)))

    def horizon(self) -> int:
        """Returns the oldest transaction that still runs: the rows of earlier ones are complete."""
        return int(str(self._value(HORIZON)))

    def next_position(self, version: Version) -> int:
        """Returns how far the lake can follow now; raises an error if this is not the history that it has followed."""
        # Seldom asked for: a lake of 0.1.0 names no schema.
        if version.source != (found := self.identity()) and version.source != self.database():
            message = (
                f"The lake has the history of the queue {version.source} (cluster/database/schema), and this is "
                f"{found}. Use another folder, or the database that it was exported from. If it is the same one, "
                "renamed, upgraded or restored: qpipeline export --adopt."
            )
            raise LakeError(message)
        horizon = self.horizon()
        if horizon < version.position:
            message = (
                f"The lake has followed the history up to transaction {version.position}, and the server is at "
                f"{horizon}: it was restored from a backup, or is a replica that is behind. If it was restored: "
                "qpipeline export --adopt."
            )
            raise HistoryReplaced(message)
        return horizon

    def recorded(self, lake_id: str) -> tuple[int, dt.date | None] | None:
        """Returns the position that the primary has recorded of a lake, 0 if it has none, and the day (UTC) of the last
        export; None: nothing can be recorded by this login, or there.
        """
        try:
            with self._at_the_primary() as connection:  # the record of a replica is behind after each commit
                return connection.execute(RECORDED, [lake_id]).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege, DatabaseUnavailable):
            return None

    def has(self, table: str) -> bool:
        """Whether the database has rows of this table.  An earlier release may not have the table."""
        return bool(self._value(f"select to_regclass('{SQL_NAMES[table]}') is not null")) and bool(
            self._value(f"select exists (select from {SQL_NAMES[table]})")  # noqa: S608 -- names of this package
        )

    def count(self, table: str, condition: str) -> tuple[int, int]:
        """Returns how many rows of a table fulfil a condition, and the sum of their ids, or of those of messages."""
        column = "id" if table == "attempts" else "message_id"
        query = f"select count(*), coalesce(sum({column}), 0) from {SQL_NAMES[table]} where {condition}"  # noqa: S608
        found = self.connection.execute(query.encode()).fetchone()
        return (int(found[0]), int(found[1])) if found else (0, 0)

    def unread(self, position: int) -> tuple[int, float]:
        """Returns how many attempts a lake at this position lacks, and how many seconds ago the first of them ended."""
        found = self._since(UNREAD, position)
        return (int(found[0]), max(0.0, float(found[1]))) if found else (0, 0.0)

    def held_back(self, end: int) -> str | None:
        """Returns what keeps the attempts after ``end`` from being exported; None: there are none, or nothing does."""
        if self._since(LATER, end) != (True,):
            return None
        number = str(end % 2**32)
        with self._at_the_primary() as connection:
            found = connection.execute(HOLDER, [number]).fetchone()
        if found is None:
            return BEHIND.format(number=number) if self._value("select pg_is_in_recovery()") else None
        pid, program, where, seconds, prepared, owner = found
        age = "for an unknown time" if seconds is None else f"for {dt.timedelta(seconds=int(seconds))}"
        if prepared is not None:
            who, remedy = (
                f"the prepared transaction {prepared} of {owner}",
                f"End it there, as {owner} or a superuser: commit prepared {prepared}, or rollback prepared {prepared}",
            )
        else:
            who, remedy = (
                f"session {pid} ({program})",
                f"End its transaction, or the session: select pg_terminate_backend({pid})",
            )
        return (
            f"Finished attempts wait for {who} in the database {where}, whose transaction has been open {age}: what it "
            f"writes must come first. {remedy}."
        )

    @contextmanager
    def _at_the_primary(self) -> Iterator[psycopg.Connection]:
        if self.primary is None:
            yield self.connection
        else:
            with database.connect(self.primary) as connection:
                yield connection

    def _since(self, query: str, transaction: int) -> tuple[Any, ...] | None:
        with self.connection.transaction():
            self.connection.execute(BY_INDEX)
            return self.connection.execute(query.encode(), [transaction]).fetchone()

    def _value(self, query: str) -> object:
        row = self.connection.execute(query.encode()).fetchone()
        return row[0] if row else None


@contextmanager
def origin_of(lake: Lake, options: Mapping[str, str]) -> Iterator[Origin]:
    """Connects to the server that the history is read from.  Commits of a lake exclude each other; there is no lock."""
    parsed = PipelineOptions.of(options)
    same_environment(lake.spark, parsed)
    with database.connect(database.reading(parsed)) as connection:
        try:
            yield Origin(connection, None if parsed.replica_variable is None else database.writing(parsed))
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(database.unavailable(error)) from error
