"""The steps of one attempt: what is recorded already, and the records that it adds."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.consumer.errors import MAX_RESTARTS, RESTART_SECONDS, is_conflict
from django_pgqueue.durable import recorder
from django_pgqueue.durable.children import EnqueuedChild
from django_pgqueue.durable.suspension import Suspension
from django_pgqueue.exceptions import AttemptLost, InvalidStep
from django_pgqueue.functions import Error, NewStep
from django_pgqueue.values import content, names

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.functions import Received, StepRecord, Wait

inside: ContextVar[str | None] = ContextVar("inside", default=None)
"""The name of the step whose function runs here."""
in_atomic: ContextVar[bool] = ContextVar("in_atomic", default=False)
"""Whether that step is atomic."""


REPEAT = "repeat "
"""Beginning of the approvals that ask whether a step is to be repeated: they are asked for once, and not again."""
logger = logging.getLogger("django_pgqueue.worker")


def open_blocks() -> int:
    """Returns the number of ``transaction.atomic()`` that are open in this thread, in all databases."""
    return sum(len(connection.atomic_blocks) for connection in connections.all(initialized_only=True))


class Steps:
    """The steps of one attempt of a durable task.

    The records of earlier attempts are read when the first step is asked for, and in a first attempt never: there are
    none.  Each record is fenced: it is written while the attempt holds the message, or not at all.
    """

    def __init__(
        self,
        message: Received,
        *,
        database: str,
        max_bytes: int,
        clock: Callable[[], dt.datetime],
        has_ended: Callable[[], bool],
        blocks: int,
        span: Callable[[str], AbstractContextManager[Any]],
    ) -> None:
        self.message = message
        self.database = database
        self.max_bytes = max_bytes
        self.clock = clock
        self.has_ended = has_ended
        self.span = span
        """Makes the span of a step, which is current while its function runs."""
        self.blocks = blocks
        """The ``open_blocks()`` around the task: none, but in a test."""
        self.interrupted: BaseException | None = None
        """The Suspension or AttemptLost that ends this attempt, whatever the task does with it."""
        self._used: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._earlier: dict[str, dict[str, StepRecord]] | None = {} if message.attempt == 1 else None

    @property
    def connection(self) -> Any:
        return connections[self.database]

    # What earlier attempts have recorded

    def begin(self, name: str) -> bool:
        """Uses a name.  Returns whether the step is done already."""
        self.require_outside(name)
        names.name_of("step", name, InvalidStep)
        if name in self._used:
            message = (
                f"The step {name!r} is used twice in this run: a name stands for one record. In a loop, number it: "
                f'context.step(f"{name}-{{n}}", …), or context.step(context.numbered({name!r}), …).'
            )
            raise InvalidStep(message)
        self._used.add(name)
        return "done" in self._of(name)

    def numbered(self, name: str) -> str:
        self._numbers[name] += 1
        return f"{name}-{self._numbers[name]}"

    def result(self, name: str) -> Any:
        """Returns the recorded result of a step that is done."""
        record = self._of(name)["done"]
        text = functions.step_result(self.connection, self.message, name) if record.is_large else record.result
        return None if text is None else content.read(text, f"the result of the step {name!r}")

    def unended(self, name: str) -> int | None:
        """Returns the attempt in which a step with ``recovery="manual"`` began, if it did not end there."""
        records = self._of(name)
        began, failed = records.get("began"), records.get("failed")
        if began is None or (failed is not None and failed.attempt >= began.attempt):
            return None
        return began.attempt

    def waits(self, name: str, kind: str) -> bool:
        """Whether an earlier attempt has been suspended by this step."""
        return _key("waiting", kind) in self._of(name)

    def until(self, name: str, kind: str) -> int | None:
        """Returns when the wait of this step ends (epoch ms), if an earlier attempt has begun to wait."""
        record = self._of(name).get(_key("waiting", kind))
        return None if record is None else record.until

    def is_over(self, until: int) -> bool:
        # The message is claimed when its dequeue_at has come: mostly that is the end of this very wait.
        return until <= self.message.dequeue_at or until <= functions.now(self.connection).timestamp() * 1000

    def _of(self, name: str) -> dict[str, StepRecord]:
        if self._earlier is None:
            self._earlier = {}
            for record in functions.step_load(self.connection, self.message):
                self._earlier.setdefault(record.name, {})[_key(record.status, record.kind)] = record
        return self._earlier.get(name, {})

    # What this attempt does

    def run(self, name: str, call: Callable[[], Any], *, is_manual: bool) -> Any:
        started_at = self._begun(name, is_manual=is_manual)
        with self._failing(name, "step", started_at), self._inside(name):
            value = call()
        return self._done(name, value, started_at)

    async def arun(self, name: str, call: Callable[[], Awaitable[Any]], *, is_manual: bool) -> Any:
        started_at = await sync_to_async(self._begun)(name, is_manual=is_manual)
        try:
            with self._inside(name):
                value = await call()
        except Exception as error:
            await sync_to_async(self._failed)(name, "step", started_at, error)
            raise
        return await sync_to_async(self._done)(name, value, started_at)

    def run_atomically(self, name: str, call: Callable[[], Any]) -> Any:
        started_at, restarts = self.clock(), 0
        with self._failing(name, "atomic", started_at):
            while True:
                try:
                    return self._run_in_a_transaction(name, call, started_at)
                except Exception as error:
                    if restarts == MAX_RESTARTS or not is_conflict(error) or self._has_happened(name):
                        raise
                restarts += 1
                logger.warning(
                    "restarted id=%s task=%s attempt=%s restarts=%s: PostgreSQL rolled the step %r back.",
                    self.message.id, self.message.task, self.message.attempt, restarts, name,
                )  # fmt: skip
                time.sleep(random.uniform(0, RESTART_SECONDS * 2**restarts))  # noqa: S311 -- spreads those that met
                self.require_open(name)

    def _run_in_a_transaction(self, name: str, call: Callable[[], Any], started_at: dt.datetime) -> Any:
        with transaction.atomic(using=self.database):
            with self._inside(name, is_atomic=True):
                value = call()
            normal, text = self._normal(name, value)
            self.record(name, text, kind="atomic", started_at=started_at)
        return normal

    def _has_happened(self, name: str) -> bool:
        """Whether it is an on_commit() callback of the step that failed."""
        records = functions.step_load(self.connection, self.message)
        return any(record.name == name and record.status == "done" for record in records)

    def enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EnqueuedChild:
        if inside.get() is not None and not in_atomic.get():
            message = (
                f"enqueue_in() inside of the step {inside.get()!r} could enqueue twice: call it outside of the step, "
                "or make the step atomic=True."
            )
            raise InvalidStep(message)
        database = getattr(getattr(task.get_backend(), "settings", None), "database", None)
        if database != self.database:
            message = (
                f"{task.module_path} has its queue in the database {database!r} and cannot be a child of a job in "
                f"{self.database!r}."
            )
            raise InvalidStep(message)
        if inside.get() is not None:
            self.require_open("enqueue_in")
            return EnqueuedChild(self._enqueue(task, args, kwargs))
        name = self.numbered(f"enqueue {task.module_path.rpartition('.')[2]}"[:200])
        if self.begin(name):
            return EnqueuedChild(self.result(name))
        started_at = self.clock()
        with transaction.atomic(using=self.database):
            child_id = self._enqueue(task, args, kwargs)
            self.record(name, str(child_id), kind="enqueue", started_at=started_at)
        return EnqueuedChild(child_id)

    def _enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        child_id = int(task.enqueue(*args, **kwargs).id)
        cancels = getattr(task, "unique_key", None) is None  # others may have asked for the message that holds the key
        if not functions.child_add(self.connection, self.message, child_id, cancels=cancels):
            raise self.lost()
        return child_id

    def record_together(
        self, name: str, result: str | None, *, status: str = "done", started_at: dt.datetime | None = None
    ) -> None:
        """Records a step in a transaction of its own, which it shares with steps of other jobs of this process."""
        message = self.message
        step = NewStep(message.id, message.attempt, message.worker, name, result, "step", status, started_at)
        if recorder.of(self.database).record(self.connection, step):
            return
        self.record(name, result, kind="step", status=status, started_at=started_at)

    def record(
        self, name: str, result: str | None, *, kind: str, status: str = "done", started_at: dt.datetime | None = None
    ) -> None:
        """Records a step in the transaction that is open.  Raises AttemptLost if another worker has the message."""
        held = functions.step_record(
            self.connection, self.message, name, result=result, kind=kind, status=status, started_at=started_at
        )
        if not held:
            raise self.lost()

    def lost(self) -> AttemptLost:
        self.interrupted = lost = AttemptLost(
            f"Message {self.message.id}: attempt {self.message.attempt} was lost, and its step is not recorded."
        )
        return lost

    def suspended(self, wait: Wait) -> Suspension:
        self.interrupted = suspension = Suspension(wait)
        return suspension

    def unasked(self) -> list[StepRecord]:
        """Returns steps that earlier attempts have done and this one, up to its end or its wait, has not asked for.

        A first attempt has none, and one that has asked for no step at all is not looked at.
        """
        return [
            records["done"]
            for name, records in (self._earlier or {}).items()
            if "done" in records
            and "unasked" not in records
            and name not in self._used
            and not (records["done"].kind == "approval" and name.startswith(REPEAT))
        ]

    def tell_unasked(self) -> None:
        """Notes them, for the doctor and the time line: the code has changed, or does not go the same way each time."""
        for step in self.unasked():
            logger.warning(
                "id=%s task=%s: the step %r was done in attempt %s, and is not asked for any more.",
                self.message.id, self.message.task, step.name, step.attempt,
            )  # fmt: skip
            with contextlib.suppress(DatabaseError), transaction.atomic(using=self.database):
                functions.step_record(self.connection, self.message, step.name, kind=step.kind, status="unasked")

    def require_uninterrupted(self) -> None:
        """Raises again what ended the attempt, if the task caught it: nothing behind it may happen now."""
        if self.interrupted is not None:
            raise self.interrupted

    # Rules

    def require_outside(self, name: str) -> None:
        self.require_open(name)
        if (outer := inside.get()) is not None:
            message = (
                f"{name!r} is inside of the step {outer!r}: a step is done or not done as a whole, so it has no steps "
                "or waits of its own. Call it behind the step."
            )
            raise InvalidStep(message)
        if open_blocks() > self.blocks:
            message = (
                f"{name!r} is inside of transaction.atomic(): a rollback would undo its record, or in another database "
                "what it did but not its record. Call it outside, or put what belongs together into one step."
            )
            raise InvalidStep(message)

    def require_open(self, name: str) -> None:
        if self.has_ended():
            message = (
                f"{name!r} comes after the end of attempt {self.message.attempt} of message {self.message.id}: a "
                "context is of no use after its task has ended, for example in a thread."
            )
            raise InvalidStep(message)
        self.require_uninterrupted()

    def _begun(self, name: str, *, is_manual: bool) -> dt.datetime:
        started_at = self.clock()
        if is_manual:
            self.record_together(name, None, status="began", started_at=started_at)
        return started_at

    def _done(self, name: str, value: Any, started_at: dt.datetime) -> Any:
        normal, text = self._normal(name, value)
        self.record_together(name, text, started_at=started_at)
        return normal

    def _normal(self, name: str, value: Any) -> tuple[Any, str | None]:
        """Returns the value as every attempt gets it, and its JSON text."""
        if value is None:
            return None, None
        what = f"the result of the step {name!r}"
        normal = content.normalize(value, what)
        return content.as_stored(normal), content.dump(normal, max_bytes=self.max_bytes, what=what)

    @contextlib.contextmanager
    def _failing(self, name: str, kind: str, started_at: dt.datetime) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._failed(name, kind, started_at, error)
            raise

    def _failed(self, name: str, kind: str, started_at: dt.datetime, error: Exception) -> None:
        """Records that the step was tried.  Where that is impossible, the error of the attempt has to do."""
        if isinstance(error, AttemptLost):
            return
        described = Error.of(error)
        text = f"{described.error_class}: {described.message}"
        with contextlib.suppress(DatabaseError, UnicodeError), transaction.atomic(using=self.database):
            functions.step_record(
                self.connection, self.message, name, kind=kind, status="failed", error=text, started_at=started_at
            )

    @contextlib.contextmanager
    def _inside(self, name: str, *, is_atomic: bool = False) -> Iterator[None]:
        token, atomic = inside.set(name), in_atomic.set(is_atomic)
        try:
            with self.span(name):
                yield
        finally:
            inside.reset(token)
            in_atomic.reset(atomic)


def _key(status: str, kind: str) -> str:
    """Each kind of wait has records of its own: after a deploy, one may have the name of an earlier one."""
    return f"{status} {kind}" if status == "waiting" else status
