"""Calls every function of the queue, and writes where it may, as each role, with values that nobody means well by.

Always the same calls, made of seeds: how many there are does not depend on how fast they are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

if TYPE_CHECKING:
    from random import Random

    from tests.support.sessions import Session

INTERNAL = ("XX", "57P", "08", "58", "53", "no")
"""Classes of errors that no call may cause: internal ones, the end of the session or the server, its resources."""
FUNCTIONS = """
select p.oid::regprocedure::text as signature, p.proname::text as name,
       array(select format_type(t, null) from unnest(p.proargtypes) as t) as types
from pg_proc p
where p.pronamespace = 'public'::regnamespace and p.proname like 'pgqueue\\_%' and p.prorettype <> 'trigger'::regtype
order by 1
"""
COLUMNS = """
select c.relname::text as table, a.attname::text as column, format_type(a.atttypid, a.atttypmod) as type
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname like 'pgqueue\\_%'
  and not c.relispartition
order by 1, 2
"""
LONG = "x" * 100_000
GROWS = "[" + "1e131071," * 130 + "1]"
"""2 kB of jsonb with a text of 17 MB, which is more than the queue takes."""
ROLES = ["none", "pgqueue_producer", "pgqueue_consumer", "pgqueue_reader", "pgqueue_admin"]
DEEP = "[" * 4000 + "]" * 4000
NAMES = [
    "", "default", "mail", "acme", "a.b", "w1", "orders", "finished", "succeeded", "keep", "replace", "debounce",
    "topic", "regex", "#", "*.x", "(a?b?c?d?){20}", "(((", "* * * * *", "UTC", "Mars/Olympus", "one", "all", "skip",
    "x" * 255,
    "x" * 256, LONG, "é" * 128, "\N{TEACUP WITHOUT HANDLE}" * 64, "a\nERROR b", "\x1b[31m", "\x01", "\u202e", "%s{0}",
    "'; drop table pgqueue_message; --", "pg_temp", "{", "null", "0", DEEP,
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 5, 100, 32767, -32768]
INTEGERS = [*NUMBERS, 2**31 - 1, -(2**31), 2_000_000_000, 1_000_000_000]
BIGINTS = [*INTEGERS, 2**63 - 1, -(2**63), 2**62, 300_000_000_000_000, 1_700_000_000_000, 10**12 + 1]
TIMES = [
    "now", "infinity", "-infinity", "epoch", "0001-01-01", "4713-01-01 BC", "9999-12-31 23:59:59", "11476-01-01",
    "294276-12-31", "2023-11-14",
]  # fmt: skip
DATES = ["today", "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "9999-12-31", "2020-02-30", "2020-02-03"]
JSONS = [
    "null", "{}", "[]", "7", '"text"', "true", "1e400", "1e131071", GROWS, DEEP, f'"{LONG}"',
    '{"args": [], "kwargs": {}}',
    '[{"content": 1}]', '{"args": 7}', '[{"content": 1, "queue": null, "priority": 1e9}]', '[{"content": null}, 7]',
    '[{"content": 1, "unique_key": "k", "task": "a.b"}]',
    '[{"content": 1, "channel": "acme"}, {"content": 2, "channel": "acme", "dequeue_at": -1}]',
    '[{"content": 1, "unique_key": "k"}, {"content": 1, "unique_key": "k", "on_conflict": "debounce"}]',
    '{"class": 7, "message": {"a": []}, "traceback": null}', '[{"content": 1, "headers": 7, "max_attempts": -1}]',
    '{"fraction": "x"}', '[{"prio": 1}]', '[{"content": 1, "dequeue_at": 1e30}]',
]  # fmt: skip
BOOLEANS = ["true", "false"]
UUIDS = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
VALUES: dict[str, list[Any]] = {
    "text": NAMES,
    "smallint": NUMBERS,
    "integer": INTEGERS,
    "bigint": BIGINTS,
    "boolean": BOOLEANS,
    "jsonb": JSONS,
    "timestamp with time zone": TIMES,
    "date": DATES,
    "uuid": UUIDS,
    "double precision": ["NaN", "Infinity", "-1", "0", "1e308"],
}


@dataclass
class Fuzzer:
    """One login with its luck."""

    session: Session
    chance: Random
    calls: int = 0
    done: int = 0
    """How many raised nothing."""
    ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        set_json_loads(lambda text: text, self.session.connection)  # Python refuses the longest numbers of PostgreSQL
        self.functions = self.session.rows(FUNCTIONS)
        self.columns = self.session.rows(COLUMNS)

    def call(self) -> None:
        function = self.chance.choice(self.functions)
        given = [(type_, self.value(type_)) for type_ in function.types]
        places = ", ".join(f"%s::{type_}" for type_, _ in given)
        self.do(f"select * from {function.name}({places})", [value for _, value in given])

    def write(self) -> None:
        column = self.chance.choice(self.columns)
        table, name = sql.Identifier(column.table), sql.Identifier(column.column)
        changed = sql.SQL("update {0} set {1} = {2} where ctid = any (array(select ctid from {0} limit 3))").format(
            table, name, sql.SQL(f"%s::{column.type}")
        )
        self.do(changed, [self.value(column.type)])

    def change_role(self) -> None:
        """Roles that the login does not have are refused."""
        done = self.done
        self.do(sql.SQL("set role {}").format(sql.Identifier(self.chance.choice(ROLES))), [])
        self.done = done  # anybody may go back to his own

    def in_a_transaction(self) -> None:
        """Several calls that stand or fall together, some of them in a savepoint."""
        with self.session.connection.transaction() as outer:
            for _ in range(self.chance.randrange(1, 6)):
                with self.session.connection.transaction() as inner:
                    self.call()
                    if self.session.connection.info.transaction_status == TransactionStatus.INERROR:
                        raise psycopg.Rollback(inner)
            if self.chance.random() < 0.5:
                raise psycopg.Rollback(outer)

    def do(self, statement: Any, values: list[Any]) -> None:
        """It may be refused, in whatever words, and nothing worse."""
        self.calls += 1
        error = self._refused(statement, values)
        said = None if error is None else error.sqlstate or "no SQLSTATE"
        assert said is None or not said.startswith(INTERNAL), self.told(statement, values, error)
        assert not self.session.connection.closed, self.told(statement, values, error)

    def _refused(self, statement: Any, values: list[Any]) -> psycopg.Error | None:
        try:
            cursor = self.session.connection.execute(
                statement.encode() if isinstance(statement, str) else statement, values
            )
        except psycopg.Error as error:
            return error
        self.done += 1
        if cursor.description and cursor.description[0].name in {"id", "p_id", "pgqueue_message_create"}:
            # What such a call returns may be more than a client can read: that is the matter of who reads it.
            with suppress(psycopg.DataError, RecursionError):
                self.ids = [row[0] for row in cursor.fetchmany(20) if isinstance(row[0], int)] or self.ids
        return None

    def told(self, statement: Any, values: list[Any], error: Exception | None) -> str:
        shown = [value if len(str(value)) < 80 else f"{str(value)[:80]}…" for value in values]
        return f"{statement} with {shown}: {type(error).__name__} {getattr(error, 'sqlstate', '')} {error}"

    def value(self, type_: str) -> str | None:
        if self.chance.random() < 0.1:
            return None
        if type_.endswith("[]"):
            number = self.chance.choice([0, 1, 2, 3, 50])
            if type_ in ("bigint[]", "integer[]") and self.chance.random() < 0.1:
                return "{" + ",".join(map(str, range(self.chance.choice([2_000, 100_001, 300_000])))) + "}"
            return "{" + ",".join(self._quoted(type_[:-2]) for _ in range(number)) + "}"
        if type_ == "bigint" and self.ids and self.chance.random() < 0.3:
            return str(self.chance.choice(self.ids))
        known = VALUES.get(type_)
        return None if known is None else str(self.chance.choice(known))

    def _quoted(self, type_: str) -> str:
        value = self.value(type_)
        if value is None or len(value) > 10_000:
            return "NULL"
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
