"""The queue in plain Python: what each function of sql/ has to answer, and what is there afterwards.

No database, no threads, no plans and no indexes: rows in dictionaries, and transactions as the versions that they have
not committed yet.  It is written from the documentation in the functions' bodies and not from their statements, so
that the two can disagree.

Where SQL is free in what it does (which queue comes first, how an odd batch is halved, in which order lanes have their
turns), the reference does not foretell the answer, it judges it: see ``Queue.dequeued``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

NEVER, PARKED = 9223372036854775807, 9223372036854775806
"""dequeue_at of what waits for other messages, and of what is parked."""
MAX_LOST = 20
LOST = "django_pgqueue.exceptions.AttemptLost"
DEPENDENCY_FAILED = "django_pgqueue.exceptions.DependencyFailed"
PARENT_CANCELLED = ("django_pgqueue.exceptions.TaskCancelled", "the job that waited for it was cancelled")

V = TypeVar("V")


class WouldWait(Exception):
    """The call would wait for the end of another transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    id: int
    dequeue_at: int
    created_at: int
    queue: str
    content: Any
    task: str | None = None
    priority: int = 0
    channel: str | None = None
    headers: Any = None
    max_attempts: int | None = 5
    max_lost: int | None = None
    unlock_at: int | None = None
    check_at: int | None = field(default=None, compare=False)
    """Its own time.  When it is looked at after that is not foretold."""
    in_line: bool = True
    """A scheduled message is not, until a full dequeue has seen that it is due."""
    alone_at: int | None = None
    unknown_since: int | None = None
    parked_at: int | None = None
    lost: int = 0
    locked_at: int | None = None
    cancel_requested_at: int | None = None
    attempt: int = 0
    unique_until_started: bool = False
    unique_key: str | None = None
    worker: str | None = None
    after_policy: str | None = None
    after_ids: tuple[int, ...] | None = None
    state: Any = None
    progress: Any = None
    last_error: str | None = None
    suspended_attempt: int | None = None
    awaited_event: str | None = None

    @property
    def waits(self) -> bool:
        return self.unlock_at is None

    @property
    def raw(self) -> bool:
        return self.task is None

    @property
    def is_suspended(self) -> bool:
        return self.waits and self.suspended_attempt == self.attempt

    @property
    def holds_its_key(self) -> bool:
        return (
            self.unique_key is not None
            and self.cancel_requested_at is None
            and (self.attempt == 0 or not self.unique_until_started)
        )

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the order in which a queue, or a lane, is dequeued."""
        return (-self.priority, self.dequeue_at, self.id)

    @property
    def place_in_history(self) -> int:
        if self.parked_at is not None:
            assert self.unknown_since is not None
            return self.unknown_since
        return self.dequeue_at if self.alone_at is None else self.alone_at

    def is_held(self, attempt: int, worker: str) -> bool:
        return self.attempt == attempt and self.worker == worker

    def unlocked(self, **changes: Any) -> Message:
        return replace(self, unlock_at=None, locked_at=None, worker=None, progress=None, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    message_id: int
    status: str
    final: bool
    attempt: int
    max_attempts: int | None
    dequeue_at: int
    created_at: int
    started_at: int | None
    finished_at: int
    priority: int
    queue: str
    channel: str | None
    task: str | None
    unique_key: str | None
    worker: str | None
    error_class: str | None
    error_message: str | None
    result: Any
    content: Any
    headers: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What somebody has decided about a channel.  One that nobody has decided about is not here."""

    max_concurrency: int | None = None
    max_size: int | None = None
    interval_ms: int | None = None
    release_at: int | None = None
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    next_at: int
    task: str
    queue: str
    content: Any
    max_attempts: int | None
    interval_ms: int


class Step(NamedTuple):
    message_id: int
    attempt: int
    status: str
    name: str
    until: int | None = None
    result: Any = None


class Table(Generic[V]):
    """Rows as transactions see them: committed ones, and for each at most one version that is not committed yet."""

    def __init__(self) -> None:
        self.committed: dict[Any, V] = {}
        self.pending: dict[Any, tuple[int, V | None]] = {}

    def get(self, session: int, key: Any) -> V | None:
        owner, version = self.pending.get(key, (None, None))
        return version if owner == session else self.committed.get(key)

    def rows(self, session: int) -> dict[Any, V]:
        seen = dict(self.committed)
        for key, (owner, version) in self.pending.items():
            if owner == session:
                seen.pop(key, None)
                if version is not None:
                    seen[key] = version
        return seen

    def is_locked(self, session: int, key: Any) -> bool:
        """Whether another transaction has written it and goes on."""
        return key in self.pending and self.pending[key][0] != session

    def put(self, session: int, key: Any, version: V | None) -> None:
        if self.is_locked(session, key):
            raise WouldWait
        self.pending[key] = (session, version)

    def changes(self, session: int) -> dict[Any, tuple[int, V | None]]:
        return {key: change for key, change in self.pending.items() if change[0] == session}

    def restore(self, session: int, changes: dict[Any, tuple[int, V | None]]) -> None:
        self.pending = {key: change for key, change in self.pending.items() if change[0] != session} | changes

    def commit(self, session: int) -> None:
        for key, (_, version) in self.changes(session).items():
            del self.pending[key]
            self.committed.pop(key, None)
            if version is not None:
                self.committed[key] = version


@dataclass(slots=True)
class Passed:
    """How often a lane that could have had a turn saw others of its queue have one."""

    times: Counter[tuple[str, str, bool]] = field(default_factory=Counter)


class Queue:
    """Sessions are numbers.  That one without a transaction commits each call is the caller's business."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.messages: Table[Message] = Table()
        self.channels: Table[Channel] = Table()
        self.paused: Table[bool] = Table()
        self.schedules: Table[Schedule] = Table()
        self.slots: Table[int | bool] = Table()
        self.keys: Table[bool] = Table()
        """Keys that a transaction has held, by session: to others it is open who holds them until it ends."""
        self.attempts: Table[Attempt] = Table()
        """By a number that says in which order they were written."""
        self.written = 0
        self.steps: Table[Step] = Table()
        """By the same number."""
        self.budgets: Table[int] = Table()
        self.events: Table[Any] = Table()
        """Payloads by names."""
        self.children: Table[int] = Table()
        """Parents by their children."""
        self.holds_lanes: set[int] = set()
        """Sessions whose transaction may have locked rows of channels or lanes."""
        self.passed = Passed()

    # Transactions

    def _put(self, session: int, message_id: int, message: Message | None) -> None:
        self.messages.put(session, message_id, message)
        if message is not None and message.holds_its_key:
            self.keys.put(session, (session, message.unique_key), True)

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        return (
            self.messages, self.channels, self.paused, self.schedules, self.slots, self.keys, self.attempts, self.steps,
            self.budgets, self.events, self.children,
        )  # fmt: skip

    def snapshot(self, session: int) -> list[Any]:
        return [table.changes(session) for table in self.tables]

    def restore(self, session: int, snapshot: list[Any]) -> None:
        for table, changes in zip(self.tables, snapshot, strict=True):
            table.restore(session, changes)

    def commit(self, session: int) -> None:
        for table in self.tables:
            table.commit(session)
        self.holds_lanes.discard(session)

    def rollback(self, session: int) -> None:
        self.restore(session, [{} for _ in self.tables])
        self.holds_lanes.discard(session)

    def is_disturbed(self, session: int) -> bool:
        """Whether somebody else's transaction may make a dequeue pass over lanes."""
        return bool(self.holds_lanes - {session}) or any(
            owner != session for table in (self.messages, self.channels) for owner, _ in table.pending.values()
        )

    # Enqueue

    def room(self, session: int, channel: str | None) -> int | None:
        """How many messages the channel takes; None: any number."""
        decided = None if channel is None else self.channels.get(session, channel)
        if decided is None:
            return None
        if decided.released:
            return 0
        if decided.max_size is None:
            return None
        waiting = sum(m.waits and m.channel == channel for m in self.messages.rows(session).values())
        return max(0, decided.max_size - waiting)

    def create(self, session: int, fresh: Callable[[], int], *, dequeue_at: int | None, **columns: Any) -> int | None:
        if self.room(session, columns.get("channel")) == 0:
            return None
        due = self.now if dequeue_at is None else dequeue_at
        message = Message(id=fresh(), dequeue_at=due, in_line=due <= self.now, created_at=self.now, **columns)
        self._put(session, message.id, message)
        return message.id

    def create_unique(
        self,
        session: int,
        fresh: Callable[[], int],
        *,
        unique_key: str,
        on_conflict: str,
        until_started: bool,
        dequeue_at: int | None,
        **columns: Any,
    ) -> tuple[int | None, bool]:
        holder = self.holder(session, unique_key)
        if self.room(session, columns["channel"]) == 0 and holder is None:
            return None, False
        if self.key_is_in_flux(session, unique_key):
            raise WouldWait
        due = self.now if dequeue_at is None else dequeue_at
        if holder is None:
            message = Message(
                id=fresh(), dequeue_at=due, created_at=self.now, unique_key=unique_key,
                unique_until_started=until_started, in_line=due <= self.now, **columns,
            )  # fmt: skip
            self._put(session, message.id, message)
            return message.id, True
        if not holder.waits or on_conflict == "keep" or self.has_steps(session, holder):
            return holder.id, False
        if on_conflict == "debounce":
            is_alone = holder.alone_at is not None
            changed = replace(
                holder, dequeue_at=NEVER if is_alone else due, alone_at=due if is_alone else None, parked_at=None,
                in_line=not is_alone and due <= self.now,
            )  # fmt: skip
        else:
            given = (
                {"headers": None, "max_lost": None}
                | columns
                | {"max_attempts": _plus(columns["max_attempts"], holder.attempt)}
            )
            changed = replace(
                holder, dequeue_at=due, in_line=due <= self.now, alone_at=None, unknown_since=None, parked_at=None,
                lost=0,
                unique_until_started=until_started, state=None,
                last_error=None, progress=None,
                **given,
            )  # fmt: skip
        self._put(session, holder.id, changed)
        return holder.id, False

    def holder(self, session: int, key: str, *, but: int | None = None) -> Message | None:
        holders = [
            m for m in self.messages.rows(session).values() if m.unique_key == key and m.holds_its_key and m.id != but
        ]
        assert len(holders) < 2, f"the reference itself has two holders of {key}: {holders}"
        return holders[0] if holders else None

    def key_is_in_flux(self, session: int, key: str) -> bool:
        """Whether it depends on the end of another transaction who holds the key."""
        if any(owner != session and held == key for (owner, held) in self.keys.pending):
            return True
        was = [self.messages.committed.get(n) for n, (owner, _) in self.messages.pending.items() if owner != session]
        return any(message is not None and message.unique_key == key and message.holds_its_key for message in was)

    def create_many(self, session: int, fresh: Callable[[], int], items: Sequence[dict[str, Any]]) -> list[int | None]:
        if any(item.get("unique_key") for item in items):
            ids: list[int | None] = [None] * len(items)
            # By the order of keys, those without one first.
            for place in sorted(range(len(items)), key=lambda n: (items[n].get("unique_key") or "", n)):
                item = dict(items[place])
                if item.get("unique_key"):
                    ids[place] = self.create_unique(session, fresh, **item)[0]
                else:
                    for name in ("unique_key", "on_conflict", "until_started"):
                        item.pop(name, None)
                    ids[place] = self.create(session, fresh, **item)
            return ids
        return [self.create(session, fresh, **item) for item in items]

    def create_after(
        self,
        session: int,
        fresh: Callable[[], int],
        *,
        after_ids: Sequence[int],
        policy: str,
        dequeue_at: int | None,
        **columns: Any,
    ) -> int | None:
        if self.room(session, columns["channel"]) == 0:
            return None
        message = Message(
            id=fresh(), dequeue_at=NEVER, created_at=self.now, after_ids=tuple(after_ids), after_policy=policy,
            check_at=self.now if dequeue_at is None else dequeue_at, in_line=False, **columns,
        )  # fmt: skip
        self._put(session, message.id, message)
        return message.id

    def attempt_enqueue(self, session: int, fresh: Callable[[], int], message_ids: Sequence[int]) -> list[int | None]:
        """By messages, because the ids of attempts are not known here."""
        created = []
        for end in sorted(self.history(session), key=lambda a: a.message_id):
            if end.final and end.message_id in message_ids:
                ends = Counter(a.status for a in self.history(session, end.message_id))
                raised = ends["deferred"] + ends["suspended"] + (0 if end.task is None else ends["lost"])
                created.append(
                    self.create(
                        session, fresh, dequeue_at=None, content=end.content, queue=end.queue, task=end.task,
                        priority=end.priority, channel=end.channel,
                        headers={**(end.headers or {}), "enqueued_again_from": end.message_id},
                        max_attempts=_plus(end.max_attempts, -raised),
                    )
                )  # fmt: skip
        return created

    def schedule_fire(
        self,
        session: int,
        fresh: Callable[[], int],
        *,
        name: str,
        slots: Sequence[int],
        expected_at: int,
        next_at: int,
        unique_key: str | None,
        channel: str | None,
    ) -> list[int]:
        schedule = self.schedules.get(session, name)
        if schedule is None or schedule.next_at != expected_at or self.schedules.is_locked(session, name):
            return []
        before, ids = self.snapshot(session), []
        for slot in slots:
            if self.slots.get(session, (name, slot)):
                continue
            self.slots.put(session, (name, slot), True)
            columns: dict[str, Any] = {
                "content": schedule.content, "queue": schedule.queue, "task": schedule.task,
                "dequeue_at": max(slot, self.now), "channel": channel,
                "headers": {"schedule": name, "slot": slot}, "max_attempts": schedule.max_attempts,
            }  # fmt: skip
            created = True
            try:
                if unique_key is None:
                    new = self.create(session, fresh, **columns)
                else:
                    new, created = self.create_unique(
                        session, fresh, unique_key=unique_key, on_conflict="keep", until_started=False, **columns
                    )
            except WouldWait:  # somebody is about to take the key: the next time
                self.restore(session, before)
                self.schedules.put(session, name, schedule)  # its row stays locked
                return []
            if created and new is not None:
                ids.append(new)
        self.schedules.put(session, name, replace(schedule, next_at=next_at))
        return ids

    def put_schedule_back(self, session: int, name: str, ms: int) -> None:
        schedule = self.schedules.get(session, name)
        if schedule is not None:
            self.schedules.put(session, name, replace(schedule, next_at=schedule.next_at - ms))

    # Ends

    def held(self, session: int, message_id: int, attempt: int, worker: str) -> Message | None:
        message = self.messages.get(session, message_id)
        if message is None or not message.is_held(attempt, worker):
            return None
        if self.messages.is_locked(session, message_id):
            raise WouldWait
        return message

    def _end(
        self,
        session: int,
        message: Message,
        status: str,
        *,
        final: bool,
        error: tuple[str, str] | None = None,
        result: Any = None,
    ) -> None:
        self.written += 1
        error_class, error_message = error or (None, None)
        self.attempts.put(session, self.written, Attempt(
            message_id=message.id, status=status, final=final, attempt=message.attempt,
            max_attempts=message.max_attempts,
            # Who has succeeded was neither parked nor quarantined any more, unless its time was written by hand.
            dequeue_at=message.dequeue_at if status == "succeeded" else message.place_in_history,
            created_at=message.created_at,
            started_at=message.locked_at, finished_at=self.now, priority=message.priority, queue=message.queue,
            channel=message.channel, task=message.task, unique_key=message.unique_key, worker=message.worker,
            error_class=error_class, error_message=error_message, result=result,
            content=message.content if final else None, headers=message.headers,
        ))  # fmt: skip
        if final:
            self._put(session, message.id, None)

    def _end_cancelled(self, session: int, message: Message, error: tuple[str, str] | None = None) -> None:
        self._end(session, message, "cancelled", final=True, error=error)
        self._cancel_children(session, message.id)

    def history(self, session: int, message_id: int | None = None) -> list[Attempt]:
        rows = sorted(self.attempts.rows(session).items())
        return [attempt for _, attempt in rows if message_id in (None, attempt.message_id)]

    def complete(self, session: int, tokens: Iterable[tuple[int, int]], worker: str, result: Any) -> set[int]:
        ended = set()
        for message_id, attempt in tokens:
            if message := self.held(session, message_id, attempt, worker):
                self._end(session, message, "succeeded", final=True, result=result)
                ended.add(message_id)
        return ended

    def defer(
        self,
        session: int,
        token: tuple[int, int, str],
        *,
        dequeue_at: int | None,
        state: Any,
        error: tuple[str, str] | None,
        max_attempts: int,
    ) -> str | None:
        message = self.held(session, *token)
        if message is None:
            return None
        used = message.attempt
        if message.max_attempts is None and max_attempts > 1:
            uncounted = ("deferred", "suspended") if message.raw else ("deferred", "suspended", "lost")
            used = 1 + sum(a.status not in uncounted for a in self.history(session, message.id))
        if message.cancel_requested_at is not None:
            self._end_cancelled(session, message, error)
            return "cancelled"
        if error and used >= (max_attempts if message.max_attempts is None else message.max_attempts):
            self._end(session, message, "failed", final=True, error=error)
            return "failed"
        status = "retried" if error else "deferred"
        self._end(session, message, status, final=False, error=error)
        due = self.now if dequeue_at is None else dequeue_at
        self._put(session, message.id, message.unlocked(
            dequeue_at=due, in_line=due <= self.now,
            state=message.state if state is None else state,
            max_attempts=_plus(message.max_attempts, 0 if error else 1),
            last_error=error[1] if error else message.last_error,
            alone_at=None, lost=0, unknown_since=None,
        ))  # fmt: skip
        return status

    # Durable tasks

    def suspend(
        self,
        session: int,
        token: tuple[int, int, str],
        *,
        name: str | None = None,
        until: int | None = None,
        event: str | None = None,
        after_ids: Sequence[int] = (),
    ) -> str | None:
        message = self.held(session, *token)
        if message is None:
            return None
        if message.cancel_requested_at is not None:
            self._end_cancelled(session, message)
            return "cancelled"
        name = name or event
        if name is not None and not self._recorded(session, message.id, "waiting", name):
            self._record(session, message, "waiting", name, until=until)
        self._end(session, message, "suspended", final=False)
        due = NEVER if until is None else until
        self._put(session, message.id, message.unlocked(
            dequeue_at=due, in_line=due <= self.now, max_attempts=_plus(message.max_attempts, 1),
            alone_at=None, lost=0, unknown_since=None, suspended_attempt=message.attempt, awaited_event=event,
            # A message that runs has others where somebody has written its time by hand.
            after_ids=tuple(after_ids) or None, after_policy="finished" if after_ids else None,
            check_at=self.now if after_ids else None,
        ))  # fmt: skip
        return "suspended"

    def emit(self, session: int, name: str, payload: Any) -> str:
        """The first one counts."""
        if self.events.is_locked(session, name):
            raise WouldWait
        before = self.events.get(session, name)
        if before is None:
            self.events.put(session, name, payload)
            return "emitted"
        return "repeated" if before == payload else "different"

    def woken(self, session: int, ids: Iterable[int]) -> None:
        """Judges who does not wait for an event any more, and takes note of it."""
        for message_id in ids:
            message = self.messages.get(session, message_id)
            assert message is not None
            assert message.is_suspended, f"{message_id} was woken, and was not suspended"
            assert self.events.get(session, message.awaited_event) is not None, f"nobody has woken {message_id}"
            self._put(session, message_id, replace(message, dequeue_at=self.now, in_line=True, awaited_event=None))

    def forgotten(self) -> set[int]:
        """Who still waits for an event that was emitted."""
        return {
            m.id
            for m in self.messages.committed.values()
            if m.is_suspended and m.parked_at is None and m.awaited_event in self.events.committed
        }

    def enqueue_child(
        self, session: int, fresh: Callable[[], int], token: tuple[int, int, str], name: str, content: Any
    ) -> tuple[int, bool] | None:
        """The id of the child, and whether it is new; None: the attempt was lost."""
        recorded = self._recorded(session, token[0], "done", name)
        if recorded:
            return recorded[0].result, False
        parent = self._holder(session, *token)
        if parent is None:
            return None
        child = self.create(session, fresh, dequeue_at=None, content=content, queue="a", task="t")
        assert child is not None
        self.children.put(session, child, parent.id)
        self._record(session, parent, "done", name, result=child)
        return child, True

    def children_of(self, session: int, parent: int) -> list[int]:
        return sorted(child for child, its in self.children.rows(session).items() if its == parent)

    def outcomes(self, session: int, ids: Iterable[int]) -> list[tuple[int, str, str | None, Any]]:
        found: list[tuple[int, str, str | None, Any]] = []
        for child in ids:
            ends = [attempt for attempt in self.history(session, child) if attempt.final]
            if self.messages.get(session, child) is not None:
                found.append((child, "waiting", None, None))
            elif ends:
                found.append((child, ends[-1].status, ends[-1].error_class, ends[-1].result))
            else:  # deleted by hand
                found.append((child, "unknown", None, None))
        return found

    def _cancel_children(self, session: int, parent: int) -> None:
        """Those that have not begun.  It waits for nobody."""
        for child in self.children_of(session, parent):
            message = self.messages.get(session, child)
            is_idle = message is not None and message.attempt == 0 and message.waits
            if message is not None and is_idle and not self.messages.is_locked(session, child):
                self._end(session, message, "cancelled", final=True, error=PARENT_CANCELLED)

    def has_steps(self, session: int, message: Message) -> bool:
        """Whether it is a durable task that has begun: nobody changes what it was enqueued with."""
        steps = self.steps.rows(session).values()
        return message.suspended_attempt is not None or (
            message.attempt > 0 and any(step.message_id == message.id for step in steps)
        )

    def _recorded(self, session: int, message_id: int, status: str, name: str) -> list[Step]:
        wanted = (message_id, status, name)
        return [s for s in self.steps.rows(session).values() if (s.message_id, s.status, s.name) == wanted]

    def step_record(self, session: int, token: tuple[int, int, str], name: str, result: Any = None) -> bool:
        message = self._holder(session, *token)
        if message is not None:
            self._record(session, message, "done", name, result=result)
        return message is not None

    def spend(
        self, session: int, token: tuple[int, int, str], name: str, amount: int, limit: int
    ) -> tuple[bool, bool | None, int | None]:
        message = self._holder(session, *token)
        if message is None:
            return False, None, None
        spent = self.budgets.get(session, (message.id, name)) or 0
        if spent + amount > limit:
            return True, False, spent
        self.budgets.put(session, (message.id, name), spent + amount)
        return True, True, spent + amount

    def _holder(self, session: int, message_id: int, attempt: int, worker: str) -> Message | None:
        """Without a wait for who writes the message."""
        message = self.messages.get(session, message_id)
        return message if message is not None and message.is_held(attempt, worker) else None

    def _record(
        self, session: int, message: Message, status: str, name: str, *, until: int | None = None, result: Any = None
    ) -> None:
        self.written += 1
        self.steps.put(session, self.written, Step(message.id, message.attempt, status, name, until, result))

    def fail(self, session: int, token: tuple[int, int, str], error: tuple[str, str], status: str = "failed") -> bool:
        message = self.held(session, *token)
        if message is not None and status == "cancelled":
            self._end_cancelled(session, message, error)
        elif message is not None:
            self._end(session, message, status, final=True, error=error)
        return message is not None

    def cancel(self, session: int, ids: Iterable[int]) -> set[int]:
        """Those that wait, or whose lock ran out."""
        rows = self.messages.rows(session)
        found = [rows[n] for n in sorted(ids) if n in rows and (rows[n].unlock_at or 0) <= self.now]
        for message in found:
            self._end(session, message, "cancelled", final=True)
        for message in found:  # one that is asked for itself is not cancelled because of its parent
            self._cancel_children(session, message.id)
        return {message.id for message in found}

    def request_cancel(self, session: int, ids: Iterable[int]) -> set[int]:
        asked = set()
        for message_id in ids:
            message = self.messages.get(session, message_id)
            if message is not None and message.worker is not None:
                at = self.now if message.cancel_requested_at is None else message.cancel_requested_at
                self._put(session, message_id, replace(message, cancel_requested_at=at))
                asked.add(message_id)
        return asked

    def cancellations(self, session: int, ids: Iterable[int], worker: str) -> set[int]:
        rows = self.messages.rows(session)
        return {n for n in ids if n in rows and rows[n].worker == worker and rows[n].cancel_requested_at is not None}

    def release(self, session: int, tokens: Sequence[tuple[int, int]], worker: str) -> set[int]:
        released: dict[int, Message] = {}
        for message_id, attempt in tokens:
            if message := self.held(session, message_id, attempt, worker):
                released[message_id] = message
        for message_id, message in released.items():
            keeps_key = not message.unique_until_started or message.attempt > 1
            key = message.unique_key if keeps_key else None
            self._put(session, message_id, message.unlocked(
                attempt=message.attempt - 1, unique_key=key,
                dequeue_at=message.dequeue_at if message.alone_at is None else NEVER, in_line=message.alone_at is None,
            ))  # fmt: skip
        for message_id, was in sorted(released.items()):
            message = self.messages.get(session, message_id)
            assert message is not None
            if message.unique_key == was.unique_key or was.unique_key is None:
                continue
            is_asked = message.cancel_requested_at is not None  # and does not hold its key anyway
            free = self.holder(session, was.unique_key, but=message_id) is None
            if is_asked or (free and not self.key_is_in_flux(session, was.unique_key)):
                self._put(session, message_id, replace(message, unique_key=was.unique_key))
        self.cancel(session, [n for n, was in released.items() if was.cancel_requested_at is not None])
        return set(released)

    def park(self, session: int, tokens: Sequence[tuple[int, int]], worker: str, reason: str) -> set[int]:
        ours = self.release(session, tokens, worker)
        for message_id in ours:
            message = self.messages.get(session, message_id)
            if message is not None and not message.raw:
                since = self.now if message.unknown_since is None else message.unknown_since
                self._put(session, message_id, replace(
                    message, parked_at=self.now, unknown_since=since, dequeue_at=PARKED, in_line=False,
                    last_error=reason,
                    alone_at=None if message.alone_at is None else NEVER,
                ))  # fmt: skip
        return ours

    def unpark(self, session: int, queue: str, task: str) -> int:
        count = 0
        for message in list(self.messages.rows(session).values()):
            is_wanted = message.parked_at is not None and (message.queue, message.task) == (queue, task)
            if is_wanted and not self.messages.is_locked(session, message.id):
                since = message.unknown_since
                assert since is not None
                self._put(session, message.id, replace(
                    message, parked_at=None, dequeue_at=since if message.alone_at is None else NEVER,
                    alone_at=None if message.alone_at is None else since, in_line=message.alone_at is None,
                ))  # fmt: skip
                count += 1
        return count

    def heartbeat(self, session: int, tokens: Sequence[tuple[int, int]], worker: str, lock_ms: int) -> set[int]:
        ours = set()
        for message_id, attempt in tokens:
            if message := self.held(session, message_id, attempt, worker):
                self._put(session, message_id, replace(message, unlock_at=self.now + lock_ms))
                ours.add(message_id)
        return ours

    def progress(self, session: int, token: tuple[int, int, str], said: Any) -> bool:
        message = self.held(session, *token)
        if message is not None:
            self._put(session, message.id, replace(message, progress=said))
        return message is not None

    def expire(self, session: int) -> int:
        count = 0
        for message in list(self.messages.rows(session).values()):
            if (
                message.unlock_at is None
                or message.unlock_at > self.now
                or self.messages.is_locked(session, message.id)
            ):
                continue
            count += 1
            self._lose(session, message, f"lost by {message.worker}", blamed=False)
        return count

    def abandon(self, session: int, tokens: Sequence[tuple[int, int]], worker: str) -> set[int]:
        ours = {message_id: self.held(session, message_id, attempt, worker) for message_id, attempt in sorted(tokens)}
        held = [message for message in ours.values() if message]
        for message in held:
            self._lose(session, message, f"lost by {worker}", blamed=None)
        return {message.id for message in held}

    def _lose(self, session: int, message: Message, reason: str, *, blamed: bool | None) -> None:
        lost, attempt = message.lost + 1, message.attempt
        if not message.raw:
            used, last = lost, MAX_LOST if message.max_lost is None else message.max_lost
        elif message.max_attempts is None:
            used, last = lost, 5
        else:
            used, last = attempt, message.max_attempts
        error = (LOST, f"{reason}: {used} of {last}")
        if message.cancel_requested_at is not None:
            self._end_cancelled(session, message, error)
        elif used >= last:
            self._end(session, message, "failed", final=True, error=error)
        else:
            alone = not message.raw and (message.alone_at is not None or (blamed is not None and (blamed or lost > 1)))
            self._end(session, message, "lost", final=False, error=error)
            self._put(session, message.id, message.unlocked(
                last_error=error[1], lost=lost,
                max_attempts=_plus(message.max_attempts, 0 if message.raw else 1),
                alone_at=message.dequeue_at if alone else None, unknown_since=None,
                dequeue_at=NEVER if alone else message.dequeue_at, in_line=not alone,
            ))  # fmt: skip

    def worker_died(self, session: int, worker: str, running: Iterable[int], ended: Iterable[int]) -> int:
        """``running`` and ``ended`` are ids of what the worker had begun, in the attempts that it holds now."""
        count = 0
        for message in sorted(self.messages.rows(session).values(), key=lambda m: m.id):
            if message.worker != worker or self.messages.is_locked(session, message.id):
                continue
            if message.id in running or message.id in ended:
                count += 1
                self._lose(session, message, f"lost by {worker}", blamed=message.id in running)
            else:
                self.release(session, [(message.id, message.attempt)], worker)
        return count

    def dequeued_alone(self, session: int, ids: Sequence[int], *, lock_ms: int, worker: str) -> None:
        """Judges an answer and takes note of it."""
        due = sorted(
            (
                m
                for m in self.messages.rows(session).values()
                if m.waits
                and m.task is not None  # no worker runs a raw one, whatever its row says
                and m.alone_at is not None
                and m.alone_at <= self.now
                and not self.paused.get(session, m.queue)
                and not self.messages.is_locked(session, m.id)
            ),
            key=lambda m: (m.lost, m.alone_at, m.id),
        )
        assert len(ids) <= 1
        if not ids:
            left = [m for m in due if m.channel is None]
            assert not left, f"{left} could be had"
            return
        [taken] = [m for m in due if m.id == ids[0]]
        if taken.channel is not None:
            self._judge_concurrency(session, taken.channel, 1)
            decided = self.channels.get(session, taken.channel)
            if decided is not None:
                assert decided.release_at is None or decided.release_at <= self.now
                until = self.now + decided.interval_ms if decided.interval_ms else None
                self.channels.put(session, taken.channel, replace(decided, release_at=until))
        passed = [m for m in due[: due.index(taken)] if m.channel is None]
        assert not passed, f"{passed} were passed over for {taken}"
        self._put(session, taken.id, replace(
            taken, unlock_at=self.now + lock_ms, locked_at=self.now, worker=worker, attempt=taken.attempt + 1,
            dequeue_at=taken.alone_at or 0,
        ))  # fmt: skip

    # What waits

    def reschedule(self, session: int, ids: Iterable[int], dequeue_at: int | None, *, breaks: bool) -> set[int]:
        moved = set()
        for message_id in ids:
            message = self.messages.get(session, message_id)
            if message is not None and message.worker is None and (breaks or message.after_ids is None):
                at = self.now if dequeue_at is None else dequeue_at
                self._put(session, message_id, replace(
                    message, dequeue_at=at if message.alone_at is None else NEVER,
                    alone_at=None if message.alone_at is None else at,
                    in_line=message.alone_at is None and at <= self.now, after_ids=None,
                    after_policy=None, check_at=None, parked_at=None,
                ))  # fmt: skip
                moved.add(message_id)
        return moved

    def settled(self, session: int, *, looked_at: Iterable[int], over: Iterable[int]) -> None:
        """Judges who was looked at, and who need not wait any more, and takes note of it.

        Messages that others wait for are never cancelled by their own policy here: then it would depend on the order
        in which two are looked at whether both have ended.
        """
        for message_id in (*looked_at, *over):
            message = self.messages.get(session, message_id)
            assert message is not None
            assert not self.messages.is_locked(session, message_id), f"{message_id} is locked by somebody else"
            assert message.check_at is not None
            assert message.check_at <= self.now, f"the time of {message_id} has not come"
            self._put(session, message_id, message)
        for message_id in over:
            message = self.messages.get(session, message_id)
            assert message is not None
            assert message.after_ids is not None
            left = [n for n in message.after_ids if self.messages.get(session, n) is not None]
            assert not left, f"{message_id} does not wait for {left} any more"
            ends = [a for n in message.after_ids for a in self.history(session, n) if a.final]
            if message.after_policy == "succeeded" and any(a.status != "succeeded" for a in ends):
                end = replace(message, dequeue_at=self.now)
                self._end(session, end, "cancelled", final=True, error=(DEPENDENCY_FAILED, "a dependency failed"))
            else:
                self._put(session, message_id, replace(
                    message, dequeue_at=self.now, in_line=True, after_ids=None, after_policy=None, check_at=None,
                ))  # fmt: skip

    def change(self, session: int, message_id: int, **columns: Any) -> None:
        """By hand."""
        message = self.messages.get(session, message_id)
        assert message is not None
        self._put(session, message_id, replace(message, **columns))

    def delete(self, session: int, message_id: int) -> None:
        """By hand: the history does not hear of it."""
        self._put(session, message_id, None)

    # Queues and channels

    def pause(self, session: int, queue: str) -> None:
        self.paused.put(session, queue, True)

    def resume(self, session: int, queue: str) -> bool:
        if not self.paused.get(session, queue):
            return False
        self.paused.put(session, queue, None)
        return True

    def set_channel(
        self, session: int, name: str, max_concurrency: int | None, max_size: int | None, interval_ms: int | None
    ) -> None:
        before = self.channels.get(session, name)
        release_at = before.release_at if before and interval_ms else None
        if release_at is not None and interval_ms:
            release_at = min(release_at, self.now + interval_ms)
        self.channels.put(session, name, Channel(
            max_concurrency=max_concurrency, max_size=max_size, interval_ms=interval_ms, release_at=release_at,
        ))  # fmt: skip

    def running(self, session: int) -> Counter[str]:
        """What runs in each channel, of what the session sees."""
        rows = self.messages.rows(session).values()
        return Counter(m.channel for m in rows if m.channel is not None and not m.waits)

    # Dequeue

    def dequeued(
        self,
        session: int,
        ids: Sequence[int],
        *,
        queues: Sequence[str] | None,
        exclude: Sequence[str],
        limit: int,
        lock_ms: int,
        worker: str,
        tasks: bool,
        brief: bool,
        in_line: dict[int, bool],
        floors: Sequence[tuple[str, int, int, int]] | None = None,
    ) -> None:
        """Judges an answer and takes note of it.  ``in_line`` says of each message whether it is in line now."""
        rows = self.messages.rows(session)
        if any(m.unlock_at is not None and m.unlock_at <= self.now for m in rows.values()):
            self.expire(session)
            rows = self.messages.rows(session)
        disturbed = self.is_disturbed(session)
        ready = [
            m
            for m in rows.values()
            if m.waits
            and m.dequeue_at <= self.now
            and m.raw != tasks
            and (queues is None or m.queue in queues)
            and m.queue not in exclude
            and not self.paused.get(session, m.queue)
            and not self.messages.is_locked(session, m.id)
        ]
        assert len(set(ids)) == len(ids) <= limit, f"{ids} are not {limit} messages"
        known = {m.id for m in ready}
        assert known.issuperset(ids), f"{[n for n in ids if n not in known]} were not to be had; ready were {known}"
        taken = [rows[n] for n in ids]
        plain = [m for m in ready if m.channel is None and _is_above(m, floors)]
        if floors is not None:  # it brings nothing into line
            plain = [m for m in plain if m.in_line]
        of_lanes = [m for m in ready if m.channel is not None]
        plain_taken = [m for m in taken if m.channel is None]
        lanes_taken = [m for m in taken if m.channel is not None]
        self._judge_numbers(session, plain, plain_taken, of_lanes, lanes_taken, limit=limit, disturbed=disturbed)
        if floors is None:
            _judge_order(plain, plain_taken, disturbed=disturbed)
        else:
            _judge_floors(plain, plain_taken, floors)
        self._judge_lanes(session, of_lanes, lanes_taken, disturbed=disturbed)
        moved = {n: m for n, m in rows.items() if in_line[n] != m.in_line}
        self._judge_line(
            session, moved, queues=queues, exclude=exclude, tasks=tasks, brief=brief, is_full=floors is None,
            at_most=limit, at_least=limit - len(lanes_taken),
        )  # fmt: skip
        for message_id, message in moved.items():
            self._put(session, message_id, replace(message, in_line=in_line[message_id]))
        outside = [m.id for m in plain_taken if not in_line[m.id]]
        assert not outside, f"{outside} were taken out of line"
        for message in taken:
            self._put(session, message.id, replace(
                message, in_line=in_line[message.id], unlock_at=self.now + lock_ms, locked_at=self.now, worker=worker,
                attempt=message.attempt + 1,
            ))  # fmt: skip
        for channel in {m.channel for m in lanes_taken}:
            decided = self.channels.get(session, channel)
            if decided is not None:
                until = self.now + decided.interval_ms if decided.interval_ms else None
                self.channels.put(session, channel, replace(decided, release_at=until))

    def _judge_line(
        self,
        session: int,
        moved: dict[int, Message],
        *,
        queues: Sequence[str] | None,
        exclude: Sequence[str],
        tasks: bool,
        brief: bool,
        is_full: bool,
        at_most: int,
        at_least: int,
    ) -> None:
        """Who came into line, and who left it.

        What is due comes into line with each full dequeue, also that of paused queues.  A transaction that goes on
        brings no more into line than it can take, because these rows stay locked: the most urgent ones.  Paused ones
        are an exception.  Who stands in line too early (that is written by hand) may leave it.
        """
        early = {n for n, m in moved.items() if m.in_line}
        for message_id in early:
            message = moved[message_id]
            assert brief, f"{message_id} left the line in a transaction that goes on"
            assert message.dequeue_at > self.now, f"{message_id} left the line and is due"
        due = {
            n: m
            for n, m in self.messages.rows(session).items()
            if m.waits
            and not m.in_line
            and m.channel is None
            and m.dequeue_at <= self.now
            and m.raw != tasks
            and is_full
            and not self.messages.is_locked(session, n)
        }
        if queues is not None:
            due = {n: m for n, m in due.items() if m.queue in queues}
        if queues is not None or not brief:
            due = {n: m for n, m in due.items() if m.queue not in exclude}
        paused = {n for n, m in due.items() if self.paused.get(session, m.queue)}
        if queues is not None:
            due = {n: m for n, m in due.items() if n not in paused}
            paused = set()
        came = moved.keys() - early
        assert came <= due.keys(), f"{came - due.keys()} came into line, and must not"
        if brief or at_least == 0:
            assert came == due.keys() or at_least == 0, f"{due.keys() - came} are due and did not come into line"
            return
        assert came >= paused, f"{paused - came} are due and paused, and did not come into line"
        others = sorted((m for n, m in due.items() if n not in paused), key=lambda m: (-m.priority, m.dequeue_at))
        number = len(came - paused)
        assert min(len(others), at_least) <= number <= at_most, f"{number} came into line: at most {at_most} fit"
        if queues is None and number:
            last = others[number - 1]
            early_ones = {m.id for m in others if (-m.priority, m.dequeue_at) < (-last.priority, last.dequeue_at)}
            assert early_ones <= came, f"{early_ones - came} are more urgent, and did not come into line"

    def _rooms(self, session: int, of_lanes: Iterable[Message]) -> dict[str, int]:
        """How many of these each channel may begin."""
        running, due = self.running(session), Counter(m.channel or "" for m in of_lanes)
        rooms = {}
        for name, number in due.items():
            decided = self.channels.get(session, name) or Channel()
            room = number
            if decided.max_concurrency is not None:
                room = min(room, max(0, decided.max_concurrency - running[name]))
            if decided.interval_ms:
                room = min(room, 0 if decided.release_at is not None and decided.release_at > self.now else 1)
            rooms[name] = room
        return rooms

    def _judge_numbers(
        self,
        session: int,
        plain: list[Message],
        plain_taken: list[Message],
        of_lanes: list[Message],
        lanes_taken: list[Message],
        *,
        limit: int,
        disturbed: bool,
    ) -> None:
        rooms = self._rooms(session, of_lanes)
        for name, number in Counter(m.channel or "" for m in lanes_taken).items():
            assert number <= rooms[name], f"channel {name} began {number}, and had room for {rooms[name]}"
            self._judge_concurrency(session, name, number)
        of_channels, of_plain = len(lanes_taken), len(plain_taken)
        if disturbed:  # lanes may have been passed over, and then their share went to the others
            assert of_plain >= min(len(plain), limit - of_channels), "plain messages were left that could be had"
            return
        at_hand = sum(rooms.values())
        possible = set()
        for share in {limit // 2, (limit + 1) // 2}:
            first = min(share, at_hand)
            others = min(len(plain), limit - first)
            second = min(at_hand - first, limit - first - others)
            possible.add((first + second, others))
        assert (of_channels, of_plain) in possible, (
            f"{of_channels} of channels and {of_plain} others were taken; it had to be one of {possible}"
        )

    def _judge_concurrency(self, session: int, name: str, number: int) -> None:
        """However the transactions that go on end: never more than the limit."""
        decided = self.channels.get(session, name)
        if decided is None or decided.max_concurrency is None:
            return
        elsewhere = 0
        for message_id, (owner, version) in self.messages.pending.items():
            before = self.messages.committed.get(message_id)
            if owner != session and version and before and version.channel == before.channel == name:
                elsewhere += not version.waits and before.waits
        total = self.running(session)[name] + number + elsewhere
        assert total <= decided.max_concurrency, f"{total} of channel {name} run at a time"

    def _judge_lanes(self, session: int, of_lanes: list[Message], taken: list[Message], *, disturbed: bool) -> None:
        lanes: dict[tuple[str, str, bool], list[Message]] = defaultdict(list)
        for message in of_lanes:
            lanes[message.channel or "", message.queue, message.raw].append(message)
        served = Counter((m.channel or "", m.queue, m.raw) for m in taken)
        rooms = self._rooms(session, of_lanes)
        for lane, messages in lanes.items():
            first = sorted(messages, key=lambda m: m.place)[: served[lane]]
            missing = {m.id for m in first} - {m.id for m in taken}
            assert not missing, f"{missing} came first in the lane {lane}"
            others = any(other[1] == lane[1] and other[0] != lane[0] for other in served)
            if disturbed or served[lane] or not rooms[lane[0]] or any(other[0] == lane[0] for other in served):
                self.passed.times.pop(lane, None)
            elif others:
                self.passed.times[lane] += 1
                assert self.passed.times[lane] <= 8, f"the lane {lane} is passed over again and again"
        for lane in [lane for lane in self.passed.times if lane not in lanes]:
            del self.passed.times[lane]

    def next_due(self, session: int, *, tasks: bool) -> tuple[int | None, int | None]:
        """When the next message can be dequeued, of those without and of those with a channel."""
        plain, of_lanes = [], []
        running = self.running(session)
        for message in self.messages.rows(session).values():
            if not message.waits or message.raw == tasks or self.paused.get(session, message.queue):
                continue
            if message.channel is None:
                plain.append(message.dequeue_at)
                continue
            decided = self.channels.get(session, message.channel) or Channel()
            limit = decided.max_concurrency
            if message.dequeue_at < PARKED and (limit is None or running[message.channel] < limit):
                of_lanes.append(max(message.dequeue_at, decided.release_at or 0))
        return min(plain, default=None), min(of_lanes, default=None)


def _judge_order(ready: list[Message], taken: list[Message], *, disturbed: bool) -> None:
    """Without a channel: by priority across queues, in order inside of a queue, and even shares where queues have the
    same priority.
    """
    ids = {m.id for m in taken}
    left = [m for m in ready if m.id not in ids]
    for message in taken:
        before = [m.id for m in left if m.priority > message.priority]
        assert not before, f"{message.id} was taken, and {before} are more urgent"
        earlier = [m.id for m in left if m.queue == message.queue and m.place < message.place]
        assert not earlier, f"{message.id} was taken, and {earlier} come before it"
    if not taken or disturbed:
        return
    last = min(m.priority for m in taken)
    queues = {m.queue for m in ready if m.priority == last}
    shares = Counter(m.queue for m in taken if m.priority == last)
    for queue, share in shares.items():
        others_wait = any(m.queue != queue and m.priority == last for m in left)
        even = ceil(shares.total() / len(queues))
        assert not others_wait or share <= even, f"{queue} has {share} of {shares.total()}, and others wait"


def _judge_floors(ready: list[Message], taken: list[Message], floors: Sequence[tuple[str, int, int, int]]) -> None:
    expected: list[int] = []
    for queue, priority, _, _ in floors:
        step = sorted((m for m in ready if (m.queue, m.priority) == (queue, priority)), key=lambda m: m.place)
        expected += [m.id for m in step if m.id not in expected]
    assert [m.id for m in taken] == expected[: len(taken)], "from the floors on it goes in their order"


def _is_above(message: Message, floors: Sequence[tuple[str, int, int, int]] | None) -> bool:
    return floors is None or any(
        (message.queue, message.priority) == floor[:2] and (message.dequeue_at, message.id) >= floor[2:]
        for floor in floors
    )


def _plus(number: int | None, more: int) -> int | None:
    return None if number is None else number + more


def fresh_from(ids: Iterator[int]) -> Callable[[], int]:
    return lambda: next(ids)
