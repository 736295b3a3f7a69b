"""Drives the functions of sql/ and the reference side by side, over several sessions, and compares them each time."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from psycopg.types.json import Jsonb

from tests.proofs.models.reference import (
    DEPENDENCY_FAILED,
    Attempt,
    Channel,
    Message,
    Queue,
    Schedule,
    Step,
    WouldWait,
    fresh_from,
)
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.sessions import Session

SESSIONS = 3
WAITS_MS = 30
"""How long a call may wait of which the reference says that it has to, or that it may."""
WAITED: Any = object()
MAX_LANES = 8
TOO_LONG = "set lock_timeout = '4s'"
"""Who waits for a lock without being foretold to, waits for nothing that ever comes: there is only one thread."""

QUEUES = ("a", "b")
ENDS = ("complete", "defer", "retry", "fail", "release", "abandon", "park")
CHANNELS = (None, None, "x", "y")
KEYS = ("k", "l")
EVENTS = ("paid", "sent")
WORKERS = ("w1", "w2")
DELAYS = (None, None, None, -5, 60, 2_000)
COLUMNS = ("channel", "queue", "priority", "dequeue_at", "task", "lock")
"""What people change by hand; "lock" takes a lock off."""
EMPTY = ";".join(
    f"delete from {table}"
    for table in (
        "pgqueue_message", "pgqueue_attempt", "pgqueue_channel", "pgqueue_lane", "pgqueue_queue", "pgqueue_schedule",
        "pgqueue_schedule_slot", "pgqueue_schedule_declaration", "pgqueue_arrival", "pgqueue_ended", "pgqueue_step",
        "pgqueue_budget", "pgqueue_event", "pgqueue_child",
    )
)  # fmt: skip
STATE = """
    select json_build_object(
        'messages', (
            select coalesce(json_agg(m order by m.id), '[]') from (
                select id, dequeue_at, pgqueue_to_epoch(created_at) as created_at, queue, content, task, priority,
                       channel, headers, max_attempts, max_lost, unlock_at, in_line, alone_at, unknown_since, parked_at,
                       lost,
                       pgqueue_to_epoch(locked_at) as locked_at,
                       pgqueue_to_epoch(cancel_requested_at) as cancel_requested_at, attempt,
                       unique_until_started, unique_key, worker, after_policy, after_ids, state, progress, last_error,
                       suspended_attempt, awaited_event
                from pgqueue_message) as m),
        'attempts', (
            select coalesce(json_agg(a), '[]') from (
                select message_id, status, final, attempt, max_attempts, dequeue_at,
                       pgqueue_to_epoch(created_at) as created_at, pgqueue_to_epoch(started_at) as started_at,
                       pgqueue_to_epoch(finished_at) as finished_at, priority, queue, channel, task, unique_key, worker,
                       error_class, error_message, result, content, headers
                from pgqueue_attempt) as a),
        'channels', (
            select coalesce(json_agg(c), '[]') from (
                select name, max_concurrency, max_size, release_interval_ms as interval_ms, release_at,
                       released_at is not null as released
                from pgqueue_channel where set_at is not null or released_at is not null) as c),
        'running', (
            select coalesce(json_object_agg(r.channel, r.running), '{}') from (
                select channel, sum(running) as running from (
                    select name as channel, running from pgqueue_channel
                    union all select channel, -ended from pgqueue_arrival) as n
                group by channel having sum(running) <> 0) as r),
        'paused', (select coalesce(json_agg(name order by name), '[]') from pgqueue_queue where paused_at is not null),
        'schedules', (select coalesce(json_object_agg(name, next_at), '{}') from pgqueue_schedule),
        'slots', (select coalesce(json_agg(json_build_array(name, slot_at) order by name, slot_at), '[]')
                  from pgqueue_schedule_slot),
        'steps', (select coalesce(json_agg(json_build_array(message_id, attempt, status, name, until, result)), '[]')
                  from pgqueue_step),
        'budgets', (select coalesce(json_agg(json_build_array(message_id, name, spent)), '[]') from pgqueue_budget),
        'events', (select coalesce(json_object_agg(name, payload), '{}') from pgqueue_event),
        'children', (select coalesce(json_agg(json_build_array(message_id, parent_id)), '[]') from pgqueue_child)
    )::text
"""


@dataclass
class Figures:
    """What a run has done."""

    examples: int = 0
    steps: int = 0
    long_examples: int = 0
    waits: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """What was seen: the ends by status, the claims by size."""

    def __str__(self) -> str:
        seen = ", ".join(f"{what} {number}" for what, number in sorted(self.answers.items()))
        return (
            f"{self.examples} examples, {self.long_examples} of them with 40 steps or more; {self.steps} steps; "
            f"{self.waits} calls that had to wait; {seen}"
        )


someone = st.integers(0, SESSIONS - 1)
picks = st.integers(0, 30)
queues = st.sampled_from(QUEUES)
channels = st.sampled_from(CHANNELS)
tasks = st.sampled_from(("t", "t", "t", None))
priorities = st.sampled_from((0, 0, 1, -1))
delays = st.sampled_from(DELAYS)
max_attempts = st.sampled_from((5, 1, 2, None))
errors = st.sampled_from((None, ("Oops", "it broke")))


class Machine(RuleBasedStateMachine):
    """One example: a fresh queue, three sessions that have or have not a transaction open, and an observer."""

    sessions: tuple[Session, ...]
    observer: Session
    figures: Figures
    patience: str
    """How long a statement may take."""

    def __init__(self) -> None:
        super().__init__()
        for session in self.sessions:
            session.rows("rollback")
        self.observer.rows(EMPTY)
        self.queue = Queue(NOON)
        self.last_id: int = self.observer.one("select coalesce(max(last_value), 0) from pg_sequences"
                                              " where sequencename = 'pgqueue_message_id_seq'")  # fmt: skip
        self.open: dict[int, list[Any]] = {}
        """Sessions with a transaction, and the savepoints in it: what the reference had not committed then."""
        self.tokens: list[tuple[int, int, str]] = []
        self.contents = count()
        self.deleted: set[int] = set()
        self.created: set[int] = set()
        self.broken = False
        self.steps = 0
        self.figures.examples += 1

    @initialize(
        seed=st.integers(0, 99), limited=st.booleans(), fired=st.booleans(),
        first=st.lists(st.tuples(queues, channels), max_size=4),
    )  # fmt: skip
    def begin_of_time(self, seed: int, limited: bool, fired: bool, first: list[tuple[str, str | None]]) -> None:
        """SQL draws lots (which queue is first): with a seed an example can be run again."""
        for number, session in enumerate(self.sessions):
            session.rows("select setseed(%s)", [(seed + number) / 200])
            session.rows(f"{TOO_LONG}; set statement_timeout = '{self.patience}'")
            session.set_clock(NOON)
        self.observer.rows(f"set statement_timeout = '{self.patience}'")
        self.observer.set_clock(NOON)
        if limited:
            self.observer.call("pgqueue_channel_set", name="x", max_concurrency=1)
            self.queue.channels.committed["x"] = Channel(max_concurrency=1)
        if fired:
            self.observer.call(
                "pgqueue_schedule_declare", name="s", task="t", next_at=NOON, interval_ms=60_000, queue="a"
            )
            self.queue.schedules.committed["s"] = Schedule(
                next_at=NOON, task="t", queue="a", content={"args": [], "kwargs": {}}, max_attempts=None,
                interval_ms=60_000,
            )  # fmt: skip
        for queue, channel in first:
            self.create_alike(0, 3, queue, channel, None)

    # Transactions and time

    @rule(who=someone, word=st.sampled_from(("begin", "commit", "commit", "rollback", "savepoint", "rollback to")))
    def transaction(self, who: int, word: str) -> None:
        session, savepoints = self.sessions[who], self.open.get(who)
        with self._step():
            if savepoints is None:
                session.rows("begin")
                self.open[who] = []
            elif word == "savepoint" and len(savepoints) < 3:
                session.rows(f"savepoint s{len(savepoints)}")
                savepoints.append(self.queue.snapshot(who))
            elif word == "rollback to" and savepoints:
                session.rows(f"rollback to s{len(savepoints) - 1}")
                self.queue.restore(who, savepoints.pop())
                self._set_clock(who)
            elif word == "rollback":
                session.rows("rollback")
                del self.open[who]
                self.queue.rollback(who)
                self._set_clock(who)
            else:
                self._commit(who)
            self._compare(who)

    def _commit(self, who: int) -> None:
        self.sessions[who].rows("commit")
        del self.open[who]
        self.queue.commit(who)

    @rule(ms=st.sampled_from((1, 50, 50, 120, 1_000, 10_000, 61_000)))
    def time_passes(self, ms: int) -> None:
        self.steps += 1
        self.queue.now += ms
        for who in range(SESSIONS):
            self._set_clock(who)
        self.observer.set_clock(self.queue.now)

    def _set_clock(self, who: int) -> None:
        """Again after a rollback, which takes it back."""
        self.sessions[who].set_clock(self.queue.now)

    # Enqueue

    def _columns(self, task: str | None, **columns: Any) -> dict[str, Any]:
        content = next(self.contents)
        return {"content": content, "task": task, "max_lost": 2 if content % 3 == 0 else None, **columns}

    def _at(self, delay: int | None) -> int | None:
        return None if delay is None else self.queue.now + delay

    @rule(who=someone, queue=queues, task=tasks, priority=priorities, channel=channels, delay=delays, last=max_attempts)
    def create(
        self,
        who: int,
        *,
        queue: str,
        task: str | None,
        priority: int,
        channel: str | None,
        delay: int | None,
        last: int | None,
    ) -> None:
        columns = self._columns(
            task, queue=queue, priority=priority, channel=channel, dequeue_at=self._at(delay), max_attempts=last
        )
        self._same(
            who,
            lambda session: session.value("pgqueue_message_create", **columns),
            lambda fresh: self.queue.create(who, fresh, **columns),
        )

    @rule(
        who=someone, queue=queues, priority=priorities, channel=channels, delay=delays, last=max_attempts,
        key=st.sampled_from(KEYS), on_conflict=st.sampled_from(("keep", "replace", "debounce")),
        until_started=st.booleans(),
    )  # fmt: skip
    def create_unique(
        self, who: int, *, queue: str, priority: int, channel: str | None, delay: int | None, last: int | None,
        key: str, on_conflict: str, until_started: bool,
    ) -> None:  # fmt: skip
        columns = self._columns(
            "t", queue=queue, priority=priority, channel=channel, dequeue_at=self._at(delay), max_attempts=last,
            unique_key=key, on_conflict=on_conflict, until_started=until_started,
        )  # fmt: skip
        self._same(
            who,
            lambda session: tuple(session.call("pgqueue_message_create_unique", **columns)[0]),
            lambda fresh: self.queue.create_unique(who, fresh, **columns),
        )

    @rule(
        who=someone, task=tasks, priority=priorities, last=max_attempts,
        items=st.lists(
            st.tuples(queues, channels, delays, st.sampled_from((None, None, None, "k", "l"))), min_size=1, max_size=4
        ),
    )  # fmt: skip
    def create_many(self, who: int, *, task: str | None, priority: int, last: int | None, items: list[Any]) -> None:
        messages: list[dict[str, Any]] = []
        for queue, channel, delay, key in items:
            message = self._columns(
                task, queue=queue, priority=priority, channel=channel, dequeue_at=self._at(delay), max_attempts=last
            )
            messages.append(message)
            if any(each[3] for each in items):
                message |= {"unique_key": key, "on_conflict": "keep", "until_started": False}
        self._same(
            who,
            lambda session: session.ids("pgqueue_message_create_many", messages=messages),
            lambda fresh: self.queue.create_many(who, fresh, messages),
        )

    @rule(who=someone, number=st.integers(1, 5), queue=queues, channel=channels, delay=delays)
    def create_alike(self, who: int, number: int, queue: str, channel: str | None, delay: int | None) -> None:
        contents = [next(self.contents) for _ in range(number)]
        common = {"queue": queue, "channel": channel, "dequeue_at": self._at(delay), "task": "t"}
        self._same(
            who,
            lambda session: session.ids("pgqueue_message_create_many", contents=Jsonb(contents), **common),
            lambda fresh: self.queue.create_many(who, fresh, [{"content": content, **common} for content in contents]),
        )

    @rule(
        who=someone, first=picks, more=picks, queue=queues, channel=channels, delay=delays,
        policy=st.sampled_from(("finished", "succeeded")),
    )  # fmt: skip
    def create_after(
        self, who: int, *, first: int, more: int, queue: str, channel: str | None, delay: int | None, policy: str
    ) -> None:
        known = self._known(who)
        seen = self.queue.messages.rows(who)
        known = [n for n in known if n not in seen or seen[n].after_policy != "succeeded"]
        if not known:
            return
        after_ids = sorted({known[first % len(known)], known[more % len(known)]})
        columns = self._columns("t", queue=queue, channel=channel, dequeue_at=self._at(delay))
        self._same(
            who,
            lambda session: session.value(
                "pgqueue_message_create_after", after_ids=after_ids, policy=policy, **columns
            ),
            lambda fresh: self.queue.create_after(who, fresh, after_ids=after_ids, policy=policy, **columns),
        )

    @rule(who=someone, pick=picks)
    def enqueue_again(self, who: int, pick: int) -> None:
        ends = [a.message_id for a in self.queue.history(who) if a.final]
        if not ends:
            return
        again = sorted({ends[pick % len(ends)], ends[-1]})
        self._same(
            who,
            lambda session: session.column(
                "select pgqueue_attempt_enqueue(array("
                "    select id from pgqueue_attempt where final and message_id = any (%s)))",
                [again],
            ),
            lambda fresh: self.queue.attempt_enqueue(who, fresh, again),
        )

    @precondition(lambda self: self.queue.schedules.committed)
    @rule(
        who=someone, late=st.booleans(), slots=st.integers(1, 2), key=st.sampled_from((None, *KEYS)), channel=channels
    )
    def fire(self, who: int, late: bool, slots: int, key: str | None, channel: str | None) -> None:
        schedule = self.queue.schedules.get(who, "s")
        assert schedule is not None
        arguments: dict[str, Any] = {
            "name": "s",
            "slots": [schedule.next_at + n * 60_000 for n in range(slots)],
            "expected_at": schedule.next_at - 60_000 * late,
            "next_at": schedule.next_at + slots * 60_000,
            "unique_key": key,
            "channel": channel,
        }
        self._same(
            who,
            lambda session: session.ids("pgqueue_schedule_fire", **arguments),
            lambda fresh: self.queue.schedule_fire(who, fresh, **arguments),
        )

    @precondition(lambda self: self.queue.schedules.committed)
    @rule(who=someone)
    def put_schedule_back(self, who: int) -> None:
        """By hand, and fired at once: perhaps that slot has been used."""
        self._same(
            who,
            lambda session: (
                session.rows("update pgqueue_schedule set next_at = next_at - 60000 where name = 's'") and None
            ),
            lambda _: self.queue.put_schedule_back(who, "s", 60_000),
            answers=False,
        )
        self.fire(who, late=False, slots=1, key=None, channel=None)

    # Dequeue

    @rule(
        who=someone, limit=st.integers(1, 6), task=tasks, worker=st.sampled_from(WORKERS),
        named=st.sampled_from((None, None, ("a",), ("b", "a"))), exclude=st.sampled_from(((), (), ("b",))),
        lock_ms=st.sampled_from((60_000, 60_000, 100)),
    )  # fmt: skip
    def dequeue(
        self, who: int, *, limit: int, task: str | None, worker: str, named: Any, exclude: Any, lock_ms: int
    ) -> None:
        self._dequeue(
            who, limit=limit, tasks=task is not None, worker=worker, queues=None if named is None else [*named],
            exclude=[*exclude], lock_ms=lock_ms,
        )  # fmt: skip

    @rule(who=someone, limit=st.integers(1, 6), worker=st.sampled_from(WORKERS))
    def take(self, who: int, limit: int, worker: str) -> None:
        """What workers do most of the time."""
        self._dequeue(who, limit=limit, tasks=True, worker=worker)

    @rule(who=someone, limit=st.integers(1, 4), pick=picks, other=picks)
    def dequeue_from_floors(self, who: int, limit: int, pick: int, other: int) -> None:
        seen = sorted(self.queue.messages.rows(who).values(), key=lambda m: m.id)
        if not seen:
            return
        places = {(m.queue, m.priority): (m.queue, m.priority, m.dequeue_at, m.id)
                  for m in (seen[pick % len(seen)], seen[other % len(seen)])}  # fmt: skip
        floors = sorted(places.values(), key=lambda floor: -floor[1])
        self._dequeue(who, limit=limit, tasks=True, worker="w1", floors=floors)

    def _dequeue(
        self, who: int, *, limit: int, tasks: bool, worker: str, queues: list[str] | None = None,
        exclude: list[str] | None = None, lock_ms: int = 60_000, floors: Any = None,
    ) -> list[int]:  # fmt: skip
        places = [None] * 4 if floors is None else [list(column) for column in zip(*floors, strict=True)]
        names = ("floor_queues", "floor_priorities", "floor_dequeue_ats", "floor_ids")
        taken: list[int] = []

        def ask(session: Session) -> Any:
            return session.dequeue(
                limit, tasks=tasks, worker=worker, queues=queues, exclude_queues=exclude or [], lock_ms=lock_ms,
                brief=who not in self.open, **dict(zip(names, places, strict=True)),
            )  # fmt: skip

        def judge(answer: Any) -> None:
            taken.extend(row.id for row in answer)
            self.figures.answers[f"claims of {min(len(taken), 3)}{'+' * (len(taken) > 2)}"] += 1
            self.queue.dequeued(
                who, taken, queues=queues, exclude=exclude or [], limit=limit, lock_ms=lock_ms, worker=worker,
                tasks=tasks, brief=who not in self.open, in_line=self._line(who), floors=floors,
            )  # fmt: skip
            for row in answer:
                now = self.queue.messages.get(who, row.id)
                assert now is not None
                assert (row.attempt, row.worker, row.unlock_at) == (now.attempt, now.worker, now.unlock_at)
                self.tokens.append((row.id, row.attempt, row.worker))

        if who in self.open:  # where it expires what it wants to take after the others
            self.expire(who)
        with self._step():
            may_have_locked = who in self.open
            waiting = self._waiting(who)
            answer = self._asked(who, ask, waits=False)
            self._settled(who, waiting)
            judge(answer)
            if may_have_locked:
                self.queue.holds_lanes.add(who)
            self._ended(who)
            self._compare(who)
            if queues is None and not exclude and floors is None and len(taken) < limit:
                self._judge_next_at(who, tasks=tasks)
        return taken

    def _line(self, who: int) -> dict[int, bool]:
        """Whether each message is in line."""
        rows = self.sessions[who].rows("select id, in_line from pgqueue_message")
        return {row.id: row.in_line for row in rows}

    def _judge_next_at(self, who: int, *, tasks: bool) -> None:
        """Who found less than wanted sleeps until then: never too long.  What is scheduled in a lane that may not run
        is a reason too, for one look, which finds that out.
        """
        plain, of_lanes = self.queue.next_due(who, tasks=tasks)
        answer = self.sessions[who].value("pgqueue_message_next_at", tasks=tasks)
        due = min((at for at in (plain, of_lanes) if at is not None), default=None)
        leaves_lanes = self._leaves_lanes(who, tasks=tasks)
        if self.queue.is_disturbed(who) or leaves_lanes:
            due = plain
        assert due is None or (answer is not None and answer <= due), f"next at {answer}, and {due} is due"
        if self.queue.is_disturbed(who) or leaves_lanes:
            return
        looks = 0
        while answer is not None and answer <= self.queue.now:
            # A channel that runs all it may has one turn a look, and so one of its lanes is halted by each.
            looks += 1
            assert looks <= MAX_LANES, "nothing is left to take, and there is no time to sleep"
            assert self.sessions[who].dequeue(6, tasks=tasks, brief=False) == []
            self.queue.dequeued(
                who, [], queues=None, exclude=[], limit=6, lock_ms=0, worker="", tasks=tasks, brief=False,
                in_line=self._line(who),
            )  # fmt: skip
            self._ended(who)
            answer = self.sessions[who].value("pgqueue_message_next_at", tasks=tasks)

    def _leaves_lanes(self, who: int, *, tasks: bool) -> bool:
        """Whether a transaction that goes on has given back lanes from which it could take nothing: they and their
        arrivals stay as they were, for others to halt or to work in.  Nobody sleeps in such a transaction.
        """
        return who in self.open and self.sessions[who].one(
            "select exists (select from pgqueue_arrival)"
            " or exists (select from pgqueue_lane where raw = %s and next_at <= %s)",
            [not tasks, self.queue.now],
        )

    # While attempts run, and their ends

    def _token(self, pick: int) -> tuple[int, int, str] | None:
        """Three times out of four one that is held; otherwise with a number too low, or any that ever was."""
        held = [m for table in (self.queue.messages.committed.values(),) for m in table if not m.waits]
        held += [m for _, m in self.queue.messages.pending.values() if m is not None and not m.waits]
        if pick % 8 and held:
            chosen = held[pick % len(held)]
            assert chosen.worker is not None
            return chosen.id, chosen.attempt - (pick % 4 == 0), chosen.worker
        return self.tokens[-1 - pick % len(self.tokens)] if self.tokens else None

    def _tokens(self, picks: list[int]) -> tuple[list[tuple[int, int]], str]:
        """Of one worker, sorted by id."""
        found = [token for token in (self._token(pick) for pick in picks) if token]
        if not found:
            return [], "w1"
        worker = found[0][2]
        return sorted({token[0]: token[:2] for token in found if token[2] == worker}.values()), worker

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=4), result=st.sampled_from((None, "done")))
    def complete(self, who: int, picked: list[int], result: Any) -> None:
        tokens, worker = self._tokens(picked)
        self._same(
            who,
            lambda session: set(session.ids(
                "pgqueue_message_complete", **_arrays(tokens, worker), results=[result] * len(tokens)
            )),
            lambda _: self.queue.complete(who, tokens, worker, result),
        )  # fmt: skip

    @rule(
        who=someone, pick=picks, delay=delays, error=errors, state=st.sampled_from((None, {"page": 2})),
        last=st.sampled_from((1, 1, 3)),
    )  # fmt: skip
    def defer(self, who: int, *, pick: int, delay: int | None, error: Any, state: Any, last: int) -> None:
        if token := self._token(pick):
            self._defer(who, token, self._at(delay), error=error, state=state, last=last)

    def _defer(
        self, who: int, token: tuple[int, int, str], dequeue_at: int | None, *, error: Any, state: Any, last: int
    ) -> None:
        given = {"dequeue_at": dequeue_at, "state": state, "max_attempts": last}
        self._same(
            who,
            lambda session: session.value("pgqueue_message_defer", **_named(token), error=_error(error), **given),
            lambda _: self.queue.defer(who, token, error=error, **given),
        )

    @rule(who=someone, pick=picks, asked=st.booleans())
    def fail(self, who: int, pick: int, asked: bool) -> None:
        """Or ends as cancelled, because it was asked to."""
        if token := self._token(pick):
            error = ("Oops", "it broke")
            name, status = ("pgqueue_message_cancel", "cancelled") if asked else ("pgqueue_message_fail", "failed")
            self._same(
                who,
                lambda session: session.value(name, **_named(token), error=_error(error)),
                lambda _: self.queue.fail(who, token, error, status),
            )

    @rule(who=someone, pick=picks, name=st.sampled_from(("one", "two")), delay=delays)
    def sleep(self, who: int, pick: int, name: str, delay: int | None) -> None:
        if token := self._token(pick):
            self._suspend(who, token, name=name, until=self.queue.now + (delay or 0))

    @rule(who=someone, pick=picks, event=st.sampled_from(EVENTS), delay=delays, late=st.booleans())
    def wait_for_event(self, who: int, pick: int, event: str, delay: int | None, late: bool) -> None:
        if token := self._token(pick):
            self._wait_for_event(who, token, event, until=self._at(delay), late=late)

    def _wait_for_event(
        self, who: int, token: tuple[int, int, str], event: str, *, until: int | None = None, late: bool
    ) -> None:
        """``late``: it looked for the event a while ago, when there was none."""
        payload = self.queue.events.get(who, event)
        if late or payload is None:
            self._suspend(who, token, kind="event", event=event, until=until)
        else:
            self._record_step(who, token, event, payload)

    @rule(who=someone, pick=picks)
    def wait_for_children(self, who: int, pick: int) -> None:
        if token := self._token(pick):
            self._wait_for_children(who, token)

    def _wait_for_children(self, who: int, token: tuple[int, int, str]) -> None:
        """For all of them; who has waited gets how each has ended."""
        ids = self.queue.children_of(who, token[0])
        if not ids:
            return
        outcomes: list[Any] = []

        def ask(session: Session) -> Any:
            answer = session.call("pgqueue_child_outcomes", parent_id=token[0], ids=ids)
            outcomes[:] = [(row.p_id, row.p_status, row.p_error_class, row.p_result) for row in answer]
            return outcomes

        self._same(who, ask, lambda _: self.queue.outcomes(who, ids))
        waiting = [child for child, status, *_ in outcomes if status == "waiting"]
        if waiting:
            self._suspend(who, token, after_ids=waiting)

    def _suspend(self, who: int, token: tuple[int, int, str], *, kind: str = "sleep", **wait: Any) -> None:
        self._same(
            who,
            lambda session: session.value("pgqueue_message_suspend", **_named(token), kind=kind, **wait),
            lambda _: self.queue.suspend(who, token, **wait),
        )

    @rule(who=someone, event=st.sampled_from(EVENTS), payload=st.integers(1, 2))
    def emit(self, who: int, event: str, payload: int) -> None:
        self._same(
            who,
            lambda session: session.value("pgqueue_event_emit", name=event, payload=Jsonb(payload)),
            lambda _: self.queue.emit(who, event, payload),
        )

    @rule(who=someone, pick=picks, name=st.sampled_from(("left", "right")))
    def enqueue_child(self, who: int, pick: int, name: str) -> None:
        if token := self._token(pick):
            self._enqueue_child(who, token, name)

    def _enqueue_child(self, who: int, token: tuple[int, int, str], name: str) -> None:
        """Unless it is recorded; with its record, or not at all."""
        content = next(self.contents)

        def ask(session: Session) -> Any:
            for row in session.call("pgqueue_step_load", id=token[0], created_at=None):
                if (row.p_status, row.p_name) == ("done", name):
                    return row.p_result, False
            with session.connection.transaction() as transaction:
                child = session.create(content, task="t", queue="a")
                held = session.value("pgqueue_child_add", **_named(token), child_id=child)
                recorded = session.value(
                    "pgqueue_step_record", **_named(token), name=name, kind="enqueue", result=child
                )
                assert held == recorded, f"child added: {held}, step recorded: {recorded}"
                if not held:
                    raise psycopg.Rollback(transaction)
            return (child, True) if held else None

        self._beside_writers(who, token, ask, lambda fresh: self.queue.enqueue_child(who, fresh, token, name, content))

    @rule(who=someone, pick=picks, name=st.sampled_from(("one", "two")))
    def record_step(self, who: int, pick: int, name: str) -> None:
        if token := self._token(pick):
            self._record_step(who, token, name)

    def _record_step(self, who: int, token: tuple[int, int, str], name: str, result: Any = None) -> None:
        self._beside_writers(
            who,
            token,
            lambda session: session.value("pgqueue_step_record", **_named(token), name=name, result=result),
            lambda _: self.queue.step_record(who, token, name, result),
        )

    @rule(who=someone, pick=picks, amount=st.integers(0, 2))
    def spend(self, who: int, pick: int, amount: int) -> None:
        if token := self._token(pick):
            self._spend(who, token, amount)

    def _spend(self, who: int, token: tuple[int, int, str], amount: int) -> None:
        self._beside_writers(
            who,
            token,
            lambda session: tuple(
                session.call("pgqueue_budget_spend", **_named(token), name="tokens", amount=amount, limit=3)[0]
            ),
            lambda _: self.queue.spend(who, token, "tokens", amount, 3),
        )

    def _beside_writers(
        self,
        who: int,
        token: tuple[int, int, str],
        ask: Callable[[Session], Any],
        reference: Callable[[Callable[[], int]], Any],
    ) -> None:
        """Asks for what locks its message for key share, which waits for some of the writes of others and not for all:
        so not in a transaction that goes on, where others would wait for it.
        """
        if who in self.open:
            return
        with self._step():
            waits = None if self.queue.messages.is_locked(who, token[0]) else False
            answer = self._asked(who, ask, waits=waits)
            if answer is not WAITED:
                self._judge(answer, reference)
            self._ended(who)
            self._compare(who)

    @rule(who=someone, pick=picks, how=st.sampled_from(ENDS), delay=delays)
    def end(self, who: int, pick: int, how: str, delay: int | None) -> None:
        """What workers do with what they have taken."""
        pick = 4 * pick + 1  # one that is held
        if how in ("defer", "retry"):
            error = ("Oops", "it broke") if how == "retry" else None
            self.defer(who, pick=pick, delay=delay, error=error, state=None, last=3)
        elif how == "fail":
            self.fail(who, pick, asked=False)
        elif how == "release":
            self.release(who, [pick, pick + 4])
        elif how == "abandon":
            self.abandon(who, [pick, pick + 4])
        elif how == "park":
            self.park(who, [pick, pick + 4])
        else:
            self.complete(who, [pick, pick + 4], None)

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=4))
    def release(self, who: int, picked: list[int]) -> None:
        tokens, worker = self._tokens(picked)
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_release", **_arrays(tokens, worker))),
            lambda _: self.queue.release(who, tokens, worker),
        )

    def abandon(self, who: int, picked: list[int]) -> None:
        tokens, worker = self._tokens(picked)
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_abandon", **_arrays(tokens, worker))),
            lambda _: self.queue.abandon(who, tokens, worker),
        )

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=4))
    def park(self, who: int, picked: list[int]) -> None:
        tokens, worker = self._tokens(picked)
        reasons = ["no such task"] * len(tokens)
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_park", **_arrays(tokens, worker), reasons=reasons)),
            lambda _: self.queue.park(who, tokens, worker, "no such task"),
        )

    @rule(who=someone, pick=picks)
    def unpark(self, who: int, pick: int) -> None:
        rows = self.queue.messages.rows(who)
        parked = sorted({(row.queue, row.task or "") for row in rows.values() if row.parked_at is not None})
        if not parked:
            return
        queue, task = parked[pick % len(parked)]
        self._same(
            who,
            lambda session: session.value("pgqueue_message_unpark", queues=[queue], tasks=[task], limit=1000),
            lambda _: self.queue.unpark(who, queue, task),
        )

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=4), lock_ms=st.sampled_from((0, 100, 60_000)))
    def heartbeat(self, who: int, picked: list[int], lock_ms: int) -> None:
        tokens, worker = self._tokens(picked)
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_heartbeat", **_arrays(tokens, worker), lock_ms=lock_ms)),
            lambda _: self.queue.heartbeat(who, tokens, worker, lock_ms),
        )

    @rule(who=someone, pick=picks)
    def progress(self, who: int, pick: int) -> None:
        if token := self._token(pick):
            self._same(
                who,
                lambda session: session.value("pgqueue_message_progress", **_named(token), progress=Jsonb(0.5)),
                lambda _: self.queue.progress(who, token, 0.5),
            )

    @rule(who=someone)
    def expire(self, who: int) -> None:
        self._same(who, lambda session: session.value("pgqueue_message_expire"), lambda _: self.queue.expire(who))

    @rule(who=someone, worker=st.sampled_from(WORKERS), marks=st.lists(st.sampled_from((0, 1, 2)), max_size=4))
    def die(self, who: int, worker: str, marks: list[int]) -> None:
        """A worker: of what it holds some had begun, and some of those had ended."""
        rows = self.queue.messages.rows(who).values()
        held = sorted((m for m in rows if m.worker == worker), key=lambda m: m.id)
        begun = [(m, mark) for m, mark in zip(held, marks, strict=False) if mark]
        self._same(
            who,
            lambda session: session.value(
                "pgqueue_worker_died", worker=worker, ids=[m.id for m, _ in begun],
                attempts=[m.attempt for m, _ in begun], running=[mark == 1 for _, mark in begun],
            ),
            lambda _: self.queue.worker_died(
                who, worker, [m.id for m, mark in begun if mark == 1], [m.id for m, mark in begun if mark == 2]
            ),
        )  # fmt: skip

    @rule(who=someone, worker=st.sampled_from(WORKERS))
    def take_alone(self, who: int, worker: str) -> None:
        self._take_alone(who, worker)

    def _take_alone(self, who: int, worker: str) -> list[int]:
        with self._step():
            may_have_locked = who in self.open
            answer = self._asked(
                who, lambda session: session.call("pgqueue_quarantine_dequeue", worker=worker), waits=False
            )
            self.queue.dequeued_alone(who, [row.id for row in answer], lock_ms=60_000, worker=worker)
            self.tokens += [(row.id, row.attempt, row.worker) for row in answer]
            if may_have_locked:
                self.queue.holds_lanes.add(who)
            self._ended(who)
            self._compare(who)
        return [row.id for row in answer]

    # What needs several steps, which hardly ever follow each other by chance

    @rule(who=someone, worker=st.sampled_from(WORKERS), states=st.lists(st.booleans(), min_size=2, max_size=3))
    def defer_again_and_again(self, who: int, worker: str, states: list[bool]) -> None:
        """A message keeps its state where a later deferral names none."""
        for has_state in states:
            for message_id in self._dequeue(who, limit=2, tasks=True, worker=worker):
                state = {"page": 3} if has_state else None
                self._defer(who, self._held(who, message_id), None, error=None, state=state, last=3)

    @rule(who=someone, worker=st.sampled_from(WORKERS), amounts=st.lists(st.integers(0, 2), min_size=3, max_size=4))
    def spend_again_and_again(self, who: int, worker: str, amounts: list[int]) -> None:
        for message_id in self._dequeue(who, limit=1, tasks=True, worker=worker):
            for amount in amounts:
                self._spend(who, self._held(who, message_id), amount)

    @rule(worker=st.sampled_from(WORKERS), waits_longer=st.booleans())
    def wait_while_somebody_emits(self, worker: str, waits_longer: bool) -> None:
        """One of the two transactions goes on until the other one has committed and somebody has looked."""
        idle = [number for number in range(SESSIONS) if number not in self.open]
        if len(idle) < SESSIONS:
            return
        waiter, emitter, other = idle
        event = f"while {next(self.contents)}"
        for message_id in self._dequeue(waiter, limit=1, tasks=True, worker=worker):
            token = self._held(waiter, message_id)
            longer = waiter if waits_longer else emitter
            self.transaction(longer, "begin")
            if waits_longer:
                self._wait_for_event(waiter, token, event, late=True)
            self.emit(emitter, event, payload=1)
            if not waits_longer:
                self._wait_for_event(waiter, token, event, late=True)
            self.settle(other)
            self.transaction(longer, "commit")
            self.settle(other)
            assert message_id not in self.queue.forgotten(), f"{message_id} waits for an event that was emitted"

    @rule(who=someone, worker=st.sampled_from(WORKERS), lost=st.booleans(), cancelled=st.booleans())
    def share_out(self, who: int, worker: str, lost: bool, cancelled: bool) -> None:
        """A parent enqueues its children, perhaps in two attempts, and waits for them."""
        for message_id in self._dequeue(who, limit=1, tasks=True, worker=worker):
            token = self._held(who, message_id)
            self._enqueue_child(who, token, "left")
            if lost:
                self._defer(who, token, 0, error=None, state=None, last=3)
                if message_id not in self._dequeue(who, limit=6, tasks=True, worker=worker):
                    return
                self._enqueue_child(who, token, "right")  # too late
                token = self._held(who, message_id)
                self._enqueue_child(who, token, "left")
            self._enqueue_child(who, token, "right")
            self._wait_for_children(who, token)
            if cancelled:
                self._cancel(who, [message_id])

    @rule(who=someone, other=someone, worker=st.sampled_from(WORKERS), key=st.sampled_from(KEYS),
          on_conflict=st.sampled_from(("replace", "debounce")))  # fmt: skip
    def enqueue_what_runs(self, who: int, other: int, *, worker: str, key: str, on_conflict: str) -> None:
        asked: dict[str, Any] = {
            "queue": "a", "priority": 1, "channel": None, "delay": None, "last": 5, "key": key, "until_started": False,
        }  # fmt: skip
        self.create_unique(who, **asked, on_conflict="keep")
        self._dequeue(who, limit=3, tasks=True, worker=worker)
        self.create_unique(other, **asked, on_conflict=on_conflict)

    @rule(who=someone, worker=st.sampled_from(WORKERS), limit=st.integers(1, 4), parked=st.booleans())
    def take_and_give_back(self, who: int, worker: str, limit: int, parked: bool) -> None:
        taken = self._dequeue(who, limit=limit, tasks=True, worker=worker)
        held = [self._held(who, message_id)[:2] for message_id in sorted(taken)]
        if parked:
            reasons = ["no such task"] * len(held)
            self._same(
                who,
                lambda session: set(session.ids("pgqueue_message_park", **_arrays(held, worker), reasons=reasons)),
                lambda _: self.queue.park(who, held, worker, "no such task"),
            )
        else:
            self._same(
                who,
                lambda session: set(session.ids("pgqueue_message_release", **_arrays(held, worker))),
                lambda _: self.queue.release(who, held, worker),
            )
        self._dequeue(who, limit=limit, tasks=True, worker=worker)

    @rule(who=someone, worker=st.sampled_from(WORKERS), task=tasks, times=st.integers(1, 3))
    def lose_again_and_again(self, who: int, worker: str, task: str | None, times: int) -> None:
        """Up to the last loss: a task is taken alone after the second one."""
        for _ in range(times):
            self._dequeue(who, limit=3, tasks=task is not None, worker=worker, lock_ms=50)
            if task is not None:
                self._take_alone(who, worker)
            self.time_passes(61_000)
            self.expire(who)

    @rule(who=someone, worker=st.sampled_from(WORKERS))
    def begin_at_intervals(self, who: int, worker: str) -> None:
        """A channel whose lanes stand in two queues begins one message an interval."""
        self.set_channel(who, "x", concurrency=None, size=None, interval_ms=100)
        for queue in QUEUES:
            self.create_alike(who, 1, queue, "x", None)
        self._dequeue(who, limit=6, tasks=True, worker=worker)
        self._dequeue(who, limit=6, tasks=True, worker=worker)

    def _held(self, who: int, message_id: int) -> tuple[int, int, str]:
        message = self.queue.messages.get(who, message_id)
        assert message is not None
        assert message.worker is not None
        return message_id, message.attempt, message.worker

    # What others do to messages

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=3))
    def cancel(self, who: int, picked: list[int]) -> None:
        self._cancel(who, self._ids(who, picked))

    def _cancel(self, who: int, ids: list[int]) -> None:
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_cancel", ids=ids)),
            lambda _: self.queue.cancel(who, ids),
        )

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=3))
    def request_cancel(self, who: int, picked: list[int]) -> None:
        """Of those that run, where there are any."""
        running = [token[0] for token in self.tokens[-6:]]
        ids = sorted({running[pick % len(running)] for pick in picked}) if running else self._ids(who, picked)
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_request_cancel", ids=ids)),
            lambda _: self.queue.request_cancel(who, ids),
        )
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_cancellations", ids=ids, worker="w1")),
            lambda _: self.queue.cancellations(who, ids, "w1"),
        )

    @rule(who=someone, picked=st.lists(picks, min_size=1, max_size=3), delay=delays, breaks=st.booleans())
    def reschedule(self, who: int, picked: list[int], delay: int | None, breaks: bool) -> None:
        ids, dequeue_at = self._ids(who, picked), self._at(delay)
        given: dict[str, Any] = {"ids": ids, "dequeue_at": dequeue_at, "break_dependencies": breaks}
        self._same(
            who,
            lambda session: set(session.ids("pgqueue_message_reschedule", **given)),
            lambda _: self.queue.reschedule(who, ids, dequeue_at, breaks=breaks),
        )

    @rule(who=someone)
    def settle(self, who: int) -> None:
        with self._step():
            waiting = self._waiting(who)
            brief = who not in self.open
            answer = self._asked(who, lambda s: s.value("pgqueue_message_settle", brief=brief), waits=False)
            over = self._settled(who, waiting)
            assert answer == len(over), f"answered {answer}, and {over} do not wait any more"
            self._ended(who)
            self._compare(who)

    def _waiting(self, who: int) -> tuple[dict[int, Any], set[int]]:
        """Who waits for others, with the columns that a look changes, and who waits for an event."""
        rows = self.sessions[who].rows(
            "select id, awaited_event, awaited_id, check_at, checks from pgqueue_message"
            " where after_ids is not null or awaited_event is not null order by id"
        )
        return (
            {row.id: tuple(row) for row in rows if row.awaited_event is None},
            {row.id for row in rows if row.awaited_event is not None},
        )

    def _settled(self, who: int, before: tuple[dict[int, Any], set[int]]) -> list[int]:
        after, await_events = self._waiting(who)
        over = [message_id for message_id in before[0] if message_id not in after]
        looked_at = [message_id for message_id in after if after[message_id] != before[0][message_id]]
        self.queue.settled(who, looked_at=looked_at, over=over)
        rows = self.queue.messages.rows(who)
        woken = [n for n in sorted(before[1] - await_events) if rows[n].waits]
        self.queue.woken(who, woken)
        return [*over, *woken]

    @rule(who=someone, pick=picks, name=st.sampled_from(COLUMNS),
          channel=channels, queue=queues, priority=priorities, delay=delays, task=tasks)  # fmt: skip
    def change_by_hand(
        self, who: int, *, pick: int, name: str, channel: str | None, queue: str, priority: int, delay: int | None,
        task: str | None,
    ) -> None:  # fmt: skip
        ids = sorted(self.queue.messages.rows(who))
        if not ids:
            return
        message_id = ids[pick % len(ids)]
        seen = self.queue.messages.get(who, message_id)
        if seen is not None and seen.alone_at is not None:
            task = task or "t"  # a raw message in quarantine: only a hand can make one, and nobody takes it
        values: dict[str, Any] = {
            "channel": channel, "queue": queue, "priority": priority, "task": task,
            "dequeue_at": self.queue.now + (delay or 0),
        }  # fmt: skip
        if name == "lock":
            changes: dict[str, Any] = {"unlock_at": None, "locked_at": None, "worker": None}
        else:
            changes = {name: values[name]}
        assignments = ", ".join(f"{column} = %s" for column in changes)
        self._same(
            who,
            lambda session: session.rows(
                f"update pgqueue_message set {assignments} where id = %s", [*changes.values(), message_id]
            ) and None,
            lambda _: self.queue.change(who, message_id, **changes),
            answers=False,
        )  # fmt: skip

    @rule(who=someone, pick=picks)
    def delete_by_hand(self, who: int, pick: int) -> None:
        ids = sorted(self.queue.messages.rows(who))
        if ids:
            message_id = ids[pick % len(ids)]
            self.deleted.add(message_id)
            self._same(
                who,
                lambda session: session.rows("delete from pgqueue_message where id = %s", [message_id]),
                lambda _: self.queue.delete(who, message_id),
                answers=False,
            )

    # Queues and channels

    @rule(who=someone, queue=queues, resumed=st.booleans())
    def pause(self, who: int, queue: str, resumed: bool) -> None:
        if resumed:
            self._same(
                who,
                lambda session: session.value("pgqueue_queue_resume", queue=queue),
                lambda _: self.queue.resume(who, queue),
            )
        else:
            self._same(
                who,
                lambda session: session.call("pgqueue_queue_pause", queue=queue),
                lambda _: self.queue.pause(who, queue),
                answers=False,
            )

    @rule(
        who=someone, name=st.sampled_from(("x", "y")), concurrency=st.sampled_from((None, 0, 1, 1, 2)),
        size=st.sampled_from((None, None, 0, 2)), interval_ms=st.sampled_from((None, None, 100)),
    )  # fmt: skip
    def set_channel(self, who: int, name: str, concurrency: Any, size: Any, interval_ms: Any) -> None:
        with self._step():
            answer = self._asked(
                who,
                lambda session: session.call(
                    "pgqueue_channel_set", name=name, max_concurrency=concurrency, max_size=size,
                    release_interval_ms=interval_ms,
                ),
                waits=self._may_wait_for_channels(who, name),
            )  # fmt: skip
            if answer is not WAITED:
                self.queue.set_channel(who, name, concurrency, size, interval_ms)
                self._locked_lanes(who)
            self._ended(who)
            self._compare(who)

    @rule(who=someone, name=st.sampled_from(("x", "y")))
    def release_channel(self, who: int, name: str) -> None:
        with self._step():
            exists = self.sessions[who].one(
                "select exists (select from pgqueue_channel where name = %(name)s)"
                " or exists (select from pgqueue_arrival where channel = %(name)s)",
                {"name": name},
            )
            answer = self._asked(
                who,
                lambda session: session.value("pgqueue_channel_release", name=name),
                waits=self._may_wait_for_channels(who, name),
            )
            if answer is not WAITED:
                self._judge_channel_release(who, name, exists=exists, gone=answer)
                self._locked_lanes(who)
            self._ended(who)
            self._compare(who)

    def _judge_channel_release(self, who: int, name: str, *, exists: bool, gone: bool | None) -> None:
        assert (gone is None) == (not exists)
        if gone is None:
            return
        messages = [m.id for m in self.queue.messages.rows(who).values() if m.channel == name]
        assert not (messages and gone), f"channel {name} is gone, and {messages} are not"
        if not messages and not self.queue.is_disturbed(who):
            assert gone, f"channel {name} has no messages, and is not gone"
        before = self.queue.channels.get(who, name) or Channel()
        after = Channel(
            max_concurrency=before.max_concurrency, max_size=before.max_size, interval_ms=before.interval_ms,
            release_at=before.release_at, released=True,
        )  # fmt: skip
        self.queue.channels.put(who, name, None if gone else after)

    @rule(who=someone, pruned=st.booleans())
    def look_after_channels(self, who: int, pruned: bool) -> None:
        """A repair finds nothing to repair, whatever has happened."""
        with self._step():
            if pruned:
                self._asked(who, lambda session: session.value("pgqueue_channel_prune"), waits=False)
            else:
                waits = any(self._may_wait_for_channels(who, name) is None for name in ("x", "y"))
                answer = self._asked(
                    who, lambda session: session.call("pgqueue_channel_repair"), waits=None if waits else False
                )
                assert answer is WAITED or answer == [], f"a count was wrong: {answer}"
            self._locked_lanes(who)
            self._ended(who)
            self._compare(who)

    def _may_wait_for_channels(self, who: int, name: str) -> bool | None:
        """None: perhaps.  Which rows a dequeue has locked that found nothing is not the reference's to know."""
        others = self.queue.holds_lanes - {who} or self.queue.channels.is_locked(who, name)
        return None if others else False

    def _locked_lanes(self, who: int) -> None:
        if who in self.open:
            self.queue.holds_lanes.add(who)

    # One step

    def _same(
        self,
        who: int,
        ask: Callable[[Session], Any],
        reference: Callable[[Callable[[], int]], Any],
        *,
        answers: bool = True,
    ) -> None:
        """Both are asked; both answer the same, or wait for the same reason."""
        with self._step():
            answer = self._asked(who, ask, waits=self._foretold(who, reference))
            if answer is not WAITED:
                self._judge(answer, reference, answers=answers)
            self._ended(who)
            self._compare(who)

    def _judge(self, answer: Any, reference: Callable[[Callable[[], int]], Any], *, answers: bool = True) -> None:
        new = sorted({n for n in _numbers(answer) if n > self.last_id})
        ids = iter(new)
        expected = reference(fresh_from(ids))
        assert not answers or answer == expected, f"answered {answer}, and not {expected}"
        assert next(ids, None) is None, f"{answer} has an id that nothing was created for"
        self.last_id = max([self.last_id, *new])
        self.created.update(new)

    def _foretold(self, who: int, reference: Callable[[Callable[[], int]], Any]) -> bool:
        """Whether the call will wait."""
        before, written = self.queue.snapshot(who), self.queue.written
        numbers = count(-1, -1)
        try:
            reference(lambda: next(numbers))
        except WouldWait:
            return True
        finally:
            self.queue.restore(who, before)
            self.queue.written = written
        return False

    def _asked(self, who: int, ask: Callable[[Session], Any], *, waits: bool | None) -> Any:
        session = self.sessions[who]
        if waits is False:
            return ask(session)
        savepoint = who in self.open
        if savepoint:
            session.rows("savepoint waiting")
        session.rows(f"set lock_timeout = '{WAITS_MS}ms'")
        try:
            answer = ask(session)
        except psycopg.errors.LockNotAvailable:
            session.rows("rollback to waiting; release waiting" if savepoint else TOO_LONG)
            self.figures.waits += 1
            return WAITED
        session.rows(TOO_LONG)
        assert waits is None, f"it should have waited, and answered {answer}"
        return answer

    def _ended(self, who: int) -> None:
        """Takes note of channels that are gone, and of the commit where no transaction is open."""
        session = self.sessions[who]
        released = [name for name, c in self.queue.channels.rows(who).items() if c.released]
        for name in released:
            if session.rows("select 1 from pgqueue_channel where name = %s and released_at is not null", [name]):
                continue
            left = [m.id for m in self.queue.messages.rows(who).values() if m.channel == name]
            assert not left, f"channel {name} is gone, and {left} are not"
            self.queue.channels.put(who, name, None)
        if who not in self.open:
            self.queue.commit(who)

    def _step(self) -> _Step:
        return _Step(self)

    # Comparing

    def _compare(self, who: int) -> None:
        """What the session sees, and what has been committed."""
        self._compare_view(who, self.sessions[who])
        if who in self.open:
            self._compare_view(SESSIONS, self.observer)

    def _compare_view(self, who: int, session: Session) -> None:
        seen = json.loads(session.one(STATE))
        expected = self.queue.messages.rows(who)
        found = {row["id"]: Message(**_message(row)) for row in seen["messages"]}
        for message_id in sorted({*expected, *found}):
            assert found.get(message_id) == expected.get(message_id), _difference(
                f"message {message_id}", found.get(message_id), expected.get(message_id)
            )
        written = sorted((Attempt(**_attempt(row)) for row in seen["attempts"]), key=_by_end)
        ended = sorted(self.queue.history(who), key=_by_end)
        assert written == ended, _difference(
            "history", *next((w, e) for w, e in zip([*written, None], [*ended, None], strict=False) if w != e)
        )
        assert {k: n for k, n in seen["running"].items() if n} == dict(self.queue.running(who)), "running has drifted"
        channels = {row.pop("name"): Channel(**row) for row in seen["channels"]}
        assert channels == self.queue.channels.rows(who)
        assert seen["paused"] == sorted(self.queue.paused.rows(who))
        assert seen["schedules"] == {name: s.next_at for name, s in self.queue.schedules.rows(who).items()}
        assert [tuple(slot) for slot in seen["slots"]] == sorted(self.queue.slots.rows(who))
        steps = [Step(*step) for step in seen["steps"]]
        assert sorted(steps, key=str) == sorted(self.queue.steps.rows(who).values(), key=str)
        assert seen["events"] == self.queue.events.rows(who)
        assert dict(seen["children"]) == self.queue.children.rows(who)
        budgets = {(message_id, name): spent for message_id, name, spent in seen["budgets"]}
        assert budgets == self.queue.budgets.rows(who)

    # Picking

    def _known(self, who: int) -> list[int]:
        return sorted({*self.queue.messages.rows(who), *(a.message_id for a in self.queue.history(who))})

    def _ids(self, who: int, picked: list[int]) -> list[int]:
        known = self._known(who)
        return sorted({known[-1 - pick % len(known)] for pick in picked}) if known else []

    # The end

    def teardown(self) -> None:
        self.figures.steps += self.steps
        self.figures.long_examples += self.steps >= 40
        if not self.broken and self.steps:
            self._work_off()
        for session in self.sessions:
            session.rows("rollback; reset all")
        self.observer.rows("reset all")

    def _work_off(self) -> None:
        """All transactions end; then everything that is left comes to its end, and nothing is lost on the way."""
        for who in list(self.open):
            self._commit(who)
        for queue in QUEUES:
            self.pause(0, queue, resumed=True)
        for name in ("x", "y"):
            self.set_channel(0, name, concurrency=1, size=None, interval_ms=None)
        for event in sorted({m.awaited_event or "" for m in self.queue.messages.committed.values()} - {""}):
            self.emit(0, event, payload=1)
        self.time_passes(1_000)
        self.settle(0)
        assert not self.queue.forgotten(), f"{self.queue.forgotten()} wait for events that were emitted"
        for _ in range(200):
            self.unpark(0, pick=0)  # somebody knows the task after all
            self._work_off_what_is_due()
            if not self.queue.messages.committed:
                break
        left = self.queue.messages.committed.values()
        assert not left, f"nobody ever comes upon {list(left)}"
        ends = Counter(a.message_id for a in self.queue.history(0) if a.final)
        assert set(ends.values()) <= {1}, "a message has ended twice"
        self._dequeue(0, limit=1, tasks=True, worker="w1")
        assert self.observer.one("select count(*) from pgqueue_arrival") == 0
        for end in self.queue.history(0):
            self.figures.answers[end.status] += 1

    def _work_off_what_is_due(self) -> None:
        self.time_passes(61_000)
        self.settle(0)
        taken = [n for tasks in (True, False) for n in self._dequeue(0, limit=20, tasks=tasks, worker="w1")]
        taken += self._take_alone(0, "w1")
        held = sorted(token[:2] for token in self.tokens[len(self.tokens) - len(taken) :])
        self._same(
            0,
            lambda session: set(session.ids("pgqueue_message_complete", **_arrays(held, "w1"))),
            lambda _: self.queue.complete(0, held, "w1", None),
        )


class _Step:
    """While a step goes on the machine counts as broken: what fails is told, and not covered by what comes after it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        self.machine.broken = True
        self.machine.steps += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.machine.broken = False


def _named(token: tuple[int, int, str]) -> dict[str, Any]:
    return {"id": token[0], "attempt": token[1], "worker": token[2]}


def _arrays(tokens: list[tuple[int, int]], worker: str) -> dict[str, Any]:
    return {"ids": [t[0] for t in tokens], "attempts": [t[1] for t in tokens], "worker": worker}


def _error(error: tuple[str, str] | None) -> dict[str, str] | None:
    return None if error is None else {"class": error[0], "message": error[1]}


def _numbers(answer: Any) -> list[int]:
    values = answer if isinstance(answer, (list, tuple)) else [answer]
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]


def _message(row: dict[str, Any]) -> dict[str, Any]:
    after_ids = row.pop("after_ids")
    row["after_ids"] = None if after_ids is None else tuple(after_ids)
    row["last_error"] = _said(row["last_error"])
    return row


def _attempt(row: dict[str, Any]) -> dict[str, Any]:
    row["error_message"] = _said(row["error_message"])
    if row["error_class"] == DEPENDENCY_FAILED:
        row["error_message"] = "a dependency failed"
    return row


def _said(text: str | None) -> str | None:
    """Without the time, which is written as people read it."""
    found = text and re.fullmatch(
        r"(?:the lock of )?worker (\S+) (?:ran out at .* UTC|(?:died|stopped) while it ran) "
        r"\((?:attempt|loss) (\d+) of (\d+)\)",
        text,
    )
    return "lost by {}: {} of {}".format(*found.groups()) if found else text


def _by_end(attempt: Attempt) -> Any:
    return (attempt.message_id, attempt.attempt, attempt.finished_at, attempt.status)


def _difference(what: str, found: Any, expected: Any) -> str:
    if found is None or expected is None:
        return f"{what}: found {found}, expected {expected}"
    names = [name for name in type(found).__slots__ if getattr(found, name) != getattr(expected, name)]
    said = ", ".join(f"{name} is {getattr(found, name)!r} and not {getattr(expected, name)!r}" for name in names)
    return f"{what}: {said}\n{found}"
