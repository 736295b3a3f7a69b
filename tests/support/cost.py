"""The cost of a statement: buffers, and the scans and entries of each index, also inside of functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.sessions import Session

SCANS = """
    select c.relname as name,
           pg_stat_get_xact_numscans(c.oid) as scans, pg_stat_get_xact_tuples_returned(c.oid) as entries
    from pg_class c
    where c.relname like 'pgqueue%' and c.relkind in ('r', 'i') and c.relnamespace = 'public'::regnamespace
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    buffers: int
    rows: int
    scans: dict[str, int]
    """How often each index was probed.  A table of that name stands for a sequential scan of it."""
    entries: dict[str, int]
    """How many entries of each index, or rows of each table, that gave."""

    @property
    def probes(self) -> int:
        return sum(self.scans.values())

    @property
    def read(self) -> set[str]:
        return set(self.scans)


def cost(session: Session, statement: str) -> Cost:
    """Runs the statement in a transaction that is rolled back, twice: catalogues and plans are read the first time."""
    for _ in range(2):
        session.rows("begin")
        before = _scans(session)
        [plan] = session.one(f"explain (analyze, buffers, timing off, format json) {statement}")
        after = _scans(session)
        session.rows("rollback")
    top = plan["Plan"]
    more = {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}
    return Cost(
        buffers=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        rows=round(top["Actual Rows"]),
        scans={name: scans for name, (scans, _) in more.items() if scans},
        entries={name: entries for name, (scans, entries) in more.items() if scans},
    )


def _scans(session: Session) -> dict[str, tuple[int, int]]:
    return {row.name: (row.scans, row.entries) for row in session.rows(SCANS)}


def index_names(session: Session, statement: str) -> set[str]:
    """The indexes in the plan of a plain statement; a table of that name stands for a sequential scan of it."""
    [plan] = session.one(f"explain (format json) {statement}")
    return set(_read_by(plan["Plan"]))


def _read_by(node: dict[str, Any]) -> list[str]:
    own = node.get("Index Name") or (node.get("Relation Name") if node["Node Type"] == "Seq Scan" else None)
    below = [name for child in node.get("Plans", []) for name in _read_by(child)]
    return [own, *below] if own else below
