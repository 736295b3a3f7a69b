"""The first export of a long history, killed again and again: what it repeats, what it misses, and its memory."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.spark.bench.memory import Memory, Sample, processes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psycopg

LOOK_SECONDS = 0.2
IDS = "select count(*) as rows, count(distinct id), min(id), max(id), sum(id)::text from {table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A process of the export, from its start until it ended or was killed."""

    seconds: float
    is_killed: bool
    rows: int
    """That the table has afterwards."""
    repeated: int
    """Rows of files that no commit names: another process writes them once more."""
    torn_bytes: int
    """Of files without a footer, whose rows nobody knows."""
    memory: Sample


def attempt(process: subprocess.Popen[str], table: Path, is_due: Callable[[], bool]) -> Attempt:
    """Waits until a process that exports into a table ends by itself, or kills it with all its processes.

    It must have been started with a session of its own.
    """
    begun, before, memory = time.monotonic(), unlisted(table), Memory(process.pid)
    memory.start()
    while is_running := process.poll() is None:
        if is_due():
            kill(process)
            break
        time.sleep(LOOK_SECONDS)
    memory.stop()
    left = unlisted(table) - before
    counts = {path: rows_of(path) for path in left}
    return Attempt(
        seconds=time.monotonic() - begun,
        is_killed=is_running,
        rows=rows_in(table),
        repeated=sum(rows or 0 for rows in counts.values()),
        torn_bytes=sum(path.stat().st_size for path, rows in counts.items() if rows is None),
        memory=memory.peaks(1)[0],
    )


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def kill(process: subprocess.Popen[str]) -> None:
    """All processes of the session: Spark's workers in Python have a process group of their own."""
    while found := [each.number for each in processes() if each.session == process.pid]:
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.poll()
    process.communicate()


def unlisted(table: Path) -> set[Path]:
    """The data files that no commit has ever named, but for those of merges."""
    named = {table / unquote(add["path"]) for commit in commits(table) for add in commit}
    return {path for path in table.rglob("*.parquet") if "_delta_log" not in path.parts and is_ours(path)} - named


def is_ours(path: Path) -> bool:
    """Files of merges have names of deltalake."""
    return not path.name.startswith("part-")


def pieces(table: Path) -> list[int]:
    """How many rows each commit of new rows has added."""
    new = ([add for add in commit if add["dataChange"]] for commit in commits(table))
    return [sum(json.loads(add["stats"])["numRecords"] for add in commit) for commit in new if commit]


def commits(table: Path) -> Iterator[list[dict[str, str]]]:
    """The files that each commit has added."""
    for path in sorted(table.glob("_delta_log/*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        yield [action["add"] for action in actions if "add" in action]


def rows_of(path: Path) -> int | None:
    """The rows of a file by its footer; None: it was cut off."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return None


def rows_in(table: Path) -> int:
    if not DeltaTable.is_deltatable(str(table)):
        return 0
    return sum(pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))["num_records"].to_pylist())


class Ids(NamedTuple):
    """Two sets of whole numbers are equal if these are, and no number between the ends is missing."""

    rows: int
    distinct: int
    least: int
    greatest: int
    total: str

    @property
    def has_all_between(self) -> bool:
        return self.rows == self.distinct == self.greatest - self.least + 1


def in_postgresql(connection: psycopg.Connection) -> Ids:
    row = connection.execute(IDS.format(table="pgqueue_attempt").encode()).fetchone()
    assert row is not None
    return Ids(*row)


def in_duckdb(table: Path, spill: Path) -> Ids:
    """Read as any reader would, file by file, with little memory."""
    with duckdb.connect(config={"memory_limit": "1GB", "threads": 1, "temp_directory": str(spill)}) as database:
        files = "read_parquet(?, hive_partitioning = false)"
        row = database.execute(IDS.format(table=files), [DeltaTable(str(table)).file_uris()]).fetchone()
    assert row is not None
    return Ids(*row)
