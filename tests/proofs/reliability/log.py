"""What was committed, and what was seen: read from a folder when the storm is over, for ``invariants``."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg


class Change(NamedTuple):
    """A message after something was done to it; after a DELETE: before it."""

    seq: int
    xid: int
    at: float
    op: str
    message_id: int
    attempt: int
    worker: str | None = None
    dequeue_at: int = 0
    channel: str | None = None
    held_key: str | None = None
    token: int | None = None
    slot: str | None = None


class End(NamedTuple):
    """A row of the history."""

    message_id: int
    attempt: int
    status: str
    final: bool
    xid: int = 0
    max_attempts: int | None = None
    worker: str | None = None
    task: str | None = None
    error_class: str | None = None
    told_attempt: int | None = None
    """Who ran it, by its own word: part of the result."""
    told_worker: str | None = None
    finished: float = 0.0


class Effect(NamedTuple):
    """What a task wrote into the database."""

    message_id: int
    attempt: int
    worker: str
    token: int = 0


class Step(NamedTuple):
    """A record of a durable job's step, numbered together with the changes of messages."""

    seq: int
    at: float
    message_id: int
    attempt: int
    kind: str
    status: str
    name: str
    until: int | None = None


class StepEffect(NamedTuple):
    """What the function of a step wrote into the database."""

    seq: int
    message_id: int
    attempt: int
    name: str


class Run(NamedTuple):
    """An attempt that began, by its diary."""

    token: int
    message_id: int
    attempt: int
    worker: str
    at: float = 0.0


class Spell(NamedTuple):
    """A fault, and how long it was there (epoch seconds)."""

    name: str
    began: float
    over: float
    stops_everybody: bool


class Death(NamedTuple):
    """Of a worker process, as its supervisor saw it."""

    pid: int
    code: int
    found_no_database: bool = False
    """It had said so just before: the numbers of processes come again within an hour."""


class Recount(NamedTuple):
    channel: str
    running: int
    counted: int


class Stop(NamedTuple):
    worker: str
    seconds: float
    code: int | None
    allowed_seconds: float


class Look(NamedTuple):
    """How long a message waited that was enqueued while a worker was just falling asleep."""

    seconds: float


@dataclass(slots=True, kw_only=True)
class Log:
    enqueued: list[tuple[int, int]] = field(default_factory=list)
    """(token, id), committed with the enqueue itself."""
    acknowledged: set[int] = field(default_factory=set)
    """Tokens whose commit was answered."""
    rolled_back: set[int] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    step_effects: list[StepEffect] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    """(parent, child), committed with the enqueue itself."""
    emitted: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    remaining: list[int] = field(default_factory=list)
    """Messages that were still in the queue when all was over."""
    limits: dict[str, int] = field(default_factory=dict)
    """Of channels: how many may run."""
    recounts: list[Recount] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    clock_changes: list[tuple[str, int]] = field(default_factory=list)
    """Where schedules went over it: the season, and when it was (epoch seconds)."""
    innocents: list[int] = field(default_factory=list)
    """Messages whose rows nobody had locked, beside many of the same worker that somebody had."""
    left_behind: list[str] = field(default_factory=list)
    """Sessions, locks and open transactions that were still there after quiet."""
    crashes: list[str] = field(default_factory=list)
    """Of workers, by an error of their own."""
    deaths: list[Death] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    """The processes that we have killed, and those that their supervisors have."""
    starts_of_bystanders: int = 1
    bystanders: list[tuple[int, float]] = field(default_factory=list)
    """The tokens of jobs that no fault aims at, and when each was asked for."""
    refused: list[tuple[float, float, str]] = field(default_factory=list)
    calms: list[tuple[float, float]] = field(default_factory=list)
    """From when to when there was no fault, and all the same work."""
    spells: list[Spell] = field(default_factory=list)
    dead_rows: dict[str, int] = field(default_factory=dict)
    """After quiet, by table."""
    seconds_to_the_end: float = 0.0
    """From the last fault to the empty queue."""
    seconds_allowed_to_the_end: float = 0.0
    kill_recovery_seconds: list[float] = field(default_factory=list)
    restart_recovery_seconds: list[float] = field(default_factory=list)
    lock_seconds: float = 0.0


TABLES = {
    "changes": "select seq, xid, extract(epoch from at)::float8, op, message_id, attempt, worker, dequeue_at, channel, "
    "held_key, token, slot from storm_change order by seq",
    "ends": "select message_id, attempt, status, final, transaction_id, max_attempts, worker, task, error_class, "
    "(result ->> 'attempt')::int, result ->> 'worker', extract(epoch from finished_at)::float8 "
    "from pgqueue_attempt order by id",
    "effects": "select message_id, attempt, worker, token from storm_effect",
    "steps": "select seq, extract(epoch from at)::float8, message_id, attempt, kind, status, name, until "
    "from storm_step order by seq",
    "step_effects": "select seq, message_id, attempt, name from storm_step_effect order by seq",
    "children": "select parent_id, message_id from storm_child",
    "emitted": "select name from pgqueue_event",
    "enqueued": "select token, message_id from storm_enqueued",
    "remaining": "select id from pgqueue_message",
}


def save(folder: Path, connection: psycopg.Connection[Any], facts: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name, query in TABLES.items():
        command = f"copy ({query}) to stdout (format csv)".encode()
        with (folder / f"{name}.csv").open("wb") as file, connection.cursor().copy(command) as copy:
            for data in copy:
                file.write(data)
    (folder / "facts.json").write_text(json.dumps(facts))


def load(folder: Path, diary: Path) -> Log:
    facts = json.loads((folder / "facts.json").read_text())
    log = Log(
        enqueued=[(int(token), int(message_id)) for token, message_id in rows(folder, "enqueued")],
        acknowledged=set(facts.pop("acknowledged")),
        rolled_back=set(facts.pop("rolled_back")),
        changes=[change(row) for row in rows(folder, "changes")],
        ends=[end(row) for row in rows(folder, "ends")],
        effects=[Effect(int(m), int(a), worker, int(token)) for m, a, worker, token in rows(folder, "effects")],
        steps=[step(row) for row in rows(folder, "steps")],
        step_effects=[StepEffect(int(seq), int(m), int(a), name) for seq, m, a, name in rows(folder, "step_effects")],
        children=[(int(parent_id), int(child_id)) for parent_id, child_id in rows(folder, "children")],
        emitted=[name for [name] in rows(folder, "emitted")],
        runs=list(runs(diary)),
        remaining=[int(message_id) for [message_id] in rows(folder, "remaining")],
        recounts=[Recount(*each) for each in facts.pop("recounts")],
        stops=[Stop(*each) for each in facts.pop("stops")],
        looks=[Look(each) for each in facts.pop("looks")],
        spells=[Spell(*each) for each in facts.pop("spells", [])],
    )
    for name, value in facts.items():
        setattr(log, name, value)
    said = (diary.parent / "workers.log").read_text(errors="replace")
    log.crashes = list(crashes(said))
    log.deaths = list(deaths(said))
    log.killed = pids((diary.parent / "killed").read_text(), r"\d+") if (diary.parent / "killed").exists() else set()
    log.killed |= pids(said, r"\bkilled pid=(\d+)")
    return log


def pids(text: str, pattern: str) -> set[int]:
    return set(map(int, re.findall(pattern, text)))


def deaths(text: str) -> Iterator[Death]:
    without: set[str] = set()
    for turned_away, pid, code in re.findall(r"\bworker pid=(\d+) cannot start|\bcrashed pid=(\d+) code=(-?\d+)", text):
        if turned_away:
            without.add(turned_away)
        else:
            yield Death(int(pid), int(code), pid in without)
            without.discard(pid)


def crashes(text: str) -> Iterator[str]:
    """What a worker process ended with that nobody had killed."""
    for traceback in re.split(r"^Traceback .*$", text, flags=re.MULTILINE)[1:]:
        if 'supervisor.py", line' in traceback and ", in work\n" in traceback:
            lines = [line for line in traceback.splitlines()[1:] if line and not line.startswith(" ")]
            yield lines[0] if lines else "?"


def rows(folder: Path, name: str) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    with (folder / f"{name}.csv").open(newline="") as file:
        yield from csv.reader(file)


def change(row: list[str]) -> Change:
    seq, xid, at, op, message_id, attempt, worker, dequeue_at, channel, held_key, token, slot = row
    return Change(
        int(seq), int(xid), float(at), op, int(message_id), int(attempt), worker or None, int(dequeue_at),
        channel or None, held_key or None, int(token) if token else None, slot or None,
    )  # fmt: skip


def end(row: list[str]) -> End:
    message_id, attempt, status, final, xid, most, worker, task, error_class, told_attempt, told_worker, finished = row
    return End(
        int(message_id), int(attempt), status, final == "t", int(xid), int(most) if most else None, worker or None,
        task or None, error_class or None, int(told_attempt) if told_attempt else None, told_worker or None,
        float(finished),
    )  # fmt: skip


def step(row: list[str]) -> Step:
    seq, at, message_id, attempt, kind, status, name, until = row
    return Step(
        int(seq), float(at), int(message_id), int(attempt), kind, status, name, int(until) if until else None
    )  # fmt: skip


def runs(diary: Path) -> Iterator[Run]:
    for file in sorted(diary.iterdir()):
        for line in file.read_text().splitlines():
            token, message_id, attempt, worker, at = line.rsplit(" ", 4)
            # Poison is no number: it belongs to nobody who enqueues.
            number = int(token) if token.lstrip("-").isdigit() else 0
            yield Run(number, int(message_id), int(attempt), worker, float(at))
