"""Finds tables and indexes that are bloated, not analysed, invalid, or near a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from django_pgqueue import functions
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.history import MAINTAIN
from django_pgqueue.monitoring.doctor.subject import named
from django_pgqueue.values.sizes import size
from django_pgqueue.worker.upkeep import bloat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

LARGE_BYTES = 1 << 20
"""A smaller table costs nothing, even if the planner guesses wrong."""
OLD_XIDS, VERY_OLD_XIDS = 500_000_000, 1_200_000_000
"""PostgreSQL freezes rows from 200 million on, and stops writing at 2,000 million."""
FULL, VERY_FULL = 0.8, 0.95

UNANALYSED_TABLE = Kind(
    "unanalysed-table",
    Severity.WARNING,
    "The planner has no statistics of the table. The queue's own functions do not need them, but your own queries do. "
    "Analyse the table, and find out why autovacuum did not.",
)
DEAD_ROWS = Kind(
    "dead-rows",
    Severity.WARNING,
    "Vacuum is too slow, or cannot remove the rows: first see findings such as old-transaction, then vacuum the table.",
)
BLOATED_TABLE = Kind(
    "bloated-table",
    Severity.WARNING,
    "The table was larger before. New rows use the space, so this is mostly harmless. To return the space to the "
    "disk, pause the queues and run VACUUM FULL, which locks the table.",
)
BLOATED_INDEX = Kind(
    "bloated-index",
    Severity.WARNING,
    "The index was larger before, and queries read more of its pages than necessary. Rebuild it concurrently.",
)
BLOAT = {
    "dead-rows": (DEAD_ROWS, "vacuum (verbose, analyze)"),
    "bloated-table": (BLOATED_TABLE, "vacuum (full, analyze)"),
    "bloated-index": (BLOATED_INDEX, "reindex index concurrently"),
}
INVALID_INDEX = Kind(
    "invalid-index",
    Severity.WARNING,
    "A CREATE or REINDEX CONCURRENTLY was interrupted: every change writes the index, and no query reads it. Rebuild "
    "it, or drop it.",
)
UNLOGGED_TABLE = Kind(
    "unlogged-table",
    Severity.ERROR,
    "A user has changed it by hand. A crash of the server empties it, a standby has none of its rows, and neither has "
    "a base backup.",
)
COLLATION_VERSION = Kind(
    "collation-version",
    Severity.ERROR,
    "The library that sorts texts has changed, as with another image of an operating system, or a standby on one: an "
    "index made before may not find its rows. Messages of a queue or a channel then do not run, and a unique key may "
    "be held twice. Stop the workers, rebuild the indexes, and record the new version.",
)
SEQUENCE_NEAR_END = Kind(
    "sequence-near-end",
    Severity.WARNING,
    "When the sequence ends, PostgreSQL can store no further message or attempt. Normal use cannot reach the end of a "
    "bigint: a user has set the sequence. Set it back, but past all ids that the history knows.",
)
SEQUENCE_BEHIND = Kind(
    "sequence-behind",
    Severity.ERROR,
    "New messages get the ids of finished ones: results of both are mixed up, and a durable task finds the steps of "
    "another one. Rows of other tables are refused. Somebody set the sequence to the largest id of its table, as tools "
    "do that copy a database, and the history is another table, or copied none, as logical replication does. Workers "
    "set it right when they start, and once an hour; so does the command.",
)
WRAPAROUND = Kind(
    "wraparound",
    Severity.WARNING,
    "PostgreSQL stops writing at 2,000 million. Another transaction keeps vacuum from freezing rows: first see "
    "findings such as old-transaction.",
)

# Only the queue's own tables and partitions: PostgreSQL makes the indexes of a partition together with it.
INVALID = """
select i.indexrelid::regclass::text, i.indrelid::regclass::text, pg_relation_size(i.indexrelid)
from pg_index i
where i.indrelid = any (%(tables)s::oid[]) and not i.indisvalid
order by 1
"""

# Rows that Spark has staged may be lost: the run fails then.
UNLOGGED = """
select c.oid::regclass::text from pg_class c
where c.oid = any (%(tables)s::oid[]) and c.relpersistence = 'u' and c.relname <> 'pgqueue_staged'
order by 1
"""

# Before PostgreSQL 15 no database records a version.
COLLATION = """
select d.datname::text, d.datcollversion, pg_database_collation_actual_version(d.oid)
from pg_database d
where d.datname = current_database() and d.datcollversion <> pg_database_collation_actual_version(d.oid)
"""

SEQUENCES = """
select s.seqrelid::regclass::text, d.refobjid::regclass::text, pg_sequence_last_value(s.seqrelid), s.seqmax
from pg_sequence s
join pg_depend d on d.objid = s.seqrelid and d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
where (d.refobjid = any (%(tables)s::oid[]) or d.refobjid = to_regclass('pgqueue_attempt')) and d.deptype in ('a', 'i')
  and case when has_sequence_privilege(s.seqrelid, 'select, usage')  -- asked first, of sequences of others, too
      then pg_sequence_last_value(s.seqrelid) > %(full)s * s.seqmax end
order by 1
"""

FOREIGN_ID = 1 << 52
"""As in pgqueue_attempt_maintain: somebody has written such an id by hand."""
IDS_OF_MESSAGES = """(
    select id from pgqueue_message union all select message_id from pgqueue_attempt
    union all select message_id from pgqueue_step)"""
SET_SEQUENCE = "select setval('{}', coalesce(max(id), 0) + 1000) from {} as known where id < {};"

MAX_ID = "select max(id) from {} where id < %(foreign)s"
KNOWN_IDS = {
    "pgqueue_message": """select greatest(
        (select max(id) from pgqueue_message where id < %(foreign)s),
        (select max(message_id) from pgqueue_attempt where message_id < %(foreign)s),
        (select max(message_id) from pgqueue_step where message_id < %(foreign)s))""",
    **{
        table: MAX_ID.format(table)
        for table in (
            "pgqueue_attempt", "pgqueue_binding", "pgqueue_edit", "pgqueue_rollup",
            "pgqueue_report_hour", "pgqueue_report_queue", "pgqueue_report_error",
        )
    },
}  # fmt: skip
BEHIND = """
select s.sequence::text, s.known, coalesce(pg_sequence_last_value(s.sequence), 0)  -- null, too, for who may not see it
from (select pg_get_serial_sequence('{table}', 'id')::regclass, ({ids})) as s (sequence, known)
where case when has_sequence_privilege(s.sequence, 'select, usage')
    then s.known > coalesce(pg_sequence_last_value(s.sequence), 0) end
"""

FROZEN = """
select c.oid::regclass::text, greatest(age(c.relfrozenxid), mxid_age(c.relminmxid))
from pg_class c
where c.oid = any (%(tables)s::oid[]) and greatest(age(c.relfrozenxid), mxid_age(c.relminmxid)) > %(old)s
order by 2 desc
limit 5
"""


def unanalysed(patient: Subject) -> Iterator[Finding]:
    for table in patient.tables():
        if table.tuples < 0 and table.bytes >= LARGE_BYTES:
            yield UNANALYSED_TABLE.found(
                f"{table.name} has {size(table.bytes)} and has never been analysed.",
                f"analyze {table.name};",
                table=table.name,
                bytes=table.bytes,
            )


def bloated(patient: Subject) -> Iterator[Finding]:
    for one in bloat.found(connections[patient.using]):
        kind, command = BLOAT[one.kind]
        values: dict[str, Any] = {
            "relation": one.name,
            "bytes": one.bytes,
            "live_rows": one.live,
            "dead_rows": one.dead,
        }
        yield kind.found(str(one), f"{command} {one.name};", **values)


def invalid_indexes(patient: Subject) -> Iterator[Finding]:
    for index, table, in_bytes in patient.rows(INVALID, {"tables": patient.oids()}):
        yield INVALID_INDEX.found(
            f"The index {index} of {table} ({size(in_bytes)}) is invalid.",
            f"reindex index concurrently {index};",
            index=index,
            table=table,
            bytes=in_bytes,
        )


def unlogged(patient: Subject) -> Iterator[Finding]:
    for [table] in patient.rows(UNLOGGED, {"tables": patient.oids()}):
        yield UNLOGGED_TABLE.found(f"The table {table} is unlogged.", f"alter table {table} set logged;", table=table)


def collation(patient: Subject) -> Iterator[Finding]:
    if patient.value("select current_setting('server_version_num')::int") < 150000:
        return
    for name, recorded, actual in patient.rows(COLLATION):
        yield COLLATION_VERSION.found(
            f"The indexes of the database {name} were made with version {recorded} of its collation, not {actual}.",
            f"reindex database {named(name)}; alter database {named(name)} refresh collation version;",
            database=name,
            recorded=recorded,
            actual=actual,
        )


def sequences(patient: Subject) -> Iterator[Finding]:
    asked = {"tables": patient.oids(), "full": FULL}
    for sequence, table, last, most in patient.rows(SEQUENCES, asked):
        used = last / most
        yield SEQUENCE_NEAR_END.found(
            f"{sequence} is at {last:,} of {most:,} ({used:.1%}).",
            SET_SEQUENCE.format(sequence, IDS_OF_MESSAGES if table.endswith("pgqueue_message") else table, FOREIGN_ID),
            severity=Severity.ERROR if used > VERY_FULL else None,
            sequence=sequence,
            last=last,
            most=most,
        )


def sequences_behind(patient: Subject) -> Iterator[Finding]:
    for table, ids in KNOWN_IDS.items():
        # A login of workers may not read all of them.
        if table != "pgqueue_message" and not functions.may_read(connections[patient.using], table):
            continue
        for sequence, known, last in patient.rows(BEHIND.format(table=table, ids=ids), {"foreign": FOREIGN_ID}):
            yield SEQUENCE_BEHIND.found(
                f"{sequence} is at {last:,}, and the id {known:,} is in use.",
                MAINTAIN,
                sequence=sequence,
                last=last,
                known=known,
            )


def wraparound(patient: Subject) -> Iterator[Finding]:
    asked = {"tables": patient.oids(), "old": OLD_XIDS}
    for table, age in patient.rows(FROZEN, asked):
        yield WRAPAROUND.found(
            f"The oldest row of {table} may be {age:,} transactions old.",
            f"vacuum (freeze, verbose) {table};",
            severity=Severity.ERROR if age > VERY_OLD_XIDS else None,
            table=table,
            transactions=age,
        )
