"""The context of a durable task: steps, waits, children, budgets."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from asgiref.sync import sync_to_async
from django.utils.asyncio import async_unsafe

from django_pgqueue import functions
from django_pgqueue.durable.children import EnqueuedChild, id_of, outcome_of
from django_pgqueue.durable.decision import Decision, event_of
from django_pgqueue.durable.events import event_name
from django_pgqueue.durable.steps import REPEAT
from django_pgqueue.exceptions import BudgetExceeded, InvalidStep, StepNotRepeated
from django_pgqueue.functions import Wait
from django_pgqueue.tasks.after import MAX_IDS
from django_pgqueue.tasks.context import PgQueueContext
from django_pgqueue.values import content, names, times
from django_pgqueue.values.limits import MAX_NAME_BYTES
from django_pgqueue.values.redaction import quote
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from django_pgqueue.compat import GenericTask
    from django_pgqueue.durable.steps import Steps

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")
Recovery = Literal["repeat", "manual"]
QUESTION = (
    "An attempt began this step, and how it ended is not recorded: it may have happened. Is the step to be repeated?"
)
MAX_DIGITS = 30
"""Limit of budgets, on each side of the point: as in pgqueue_budget_spend."""
KEYS = uuid.UUID("6f1d3a8e-3c53-4d0c-9a0e-5f2f0c1b7a55")
"""Namespace of ``key``."""


def _awaited_as(name: str) -> Callable[[F], F]:
    """Names the variant to an async task that calls a method which it cannot call."""
    return async_unsafe(f"An async task cannot call this: await context.{name}(…).")


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableContext(PgQueueContext):  # type: ignore[misc,unused-ignore]
    """The context of a task with ``durable=True``.

    A step, a wait or a child is recorded: in later attempts its method returns what is recorded.  A name stands for one
    record, and may be used once in an attempt.  ``spend`` is not recorded so: each call spends.  The methods that begin
    with ``a`` are for async tasks.
    """

    steps: Steps = field(repr=False)

    def key(self, name: str) -> str:
        """Returns a key that is the same in every attempt: an idempotency key for another system."""
        created = to_epoch_ms(self.message.created_at)
        return str(uuid.uuid5(KEYS, f"{self.message.id}:{created}:{name}"))

    def numbered(self, name: str) -> str:
        """Returns ``name-1``, then ``name-2``, and so on: names for the steps of a loop."""
        return self.steps.numbered(name)

    # Steps

    @overload
    def step(self, name: str, *, atomic: bool = ..., recovery: Recovery = ...) -> Callable[[Callable[[], R]], R]: ...
    @overload
    def step(
        self, name: str, function: Callable[..., R], *args: Any, atomic: bool = ..., recovery: Recovery = ...
    ) -> R: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *args: Any,
        atomic: bool = False,
        recovery: Recovery = "repeat",
    ) -> Any:
        """Calls ``function(*args)`` and records what it returns; in later attempts it returns that.

        ``atomic``: the function, its writes and its record are one transaction.  ``recovery="manual"``: where an
        attempt ended in the middle of the step, a person decides whether it is repeated.

        >>> charge = context.step("charge", charge_card, order_pk, context.key("charge"))  # doctest: +SKIP

        As a decorator, it calls the function at once, and the name stands for what it returned:

        >>> @context.step("charge")
        ... def charge():
        ...     return charge_card(order_pk)  # doctest: +SKIP
        """
        if function is None:
            return partial(self._step, name, atomic=atomic, recovery=recovery)
        return self._step(name, function, *args, atomic=atomic, recovery=recovery)

    @_awaited_as("astep")
    def _step(self, name: str, function: Callable[..., Any], *args: Any, atomic: bool, recovery: Recovery) -> Any:
        if iscoroutinefunction(function):
            message = f"The function of the step {name!r} is async: await context.astep({name!r}, …)."
            raise InvalidStep(message)
        if self.steps.begin(name):
            return self.steps.result(name)
        self._ask_before_repeating(name, atomic=atomic, recovery=recovery)
        if atomic:
            return self.steps.run_atomically(name, partial(function, *args))
        return self.steps.run(name, partial(function, *args), is_manual=recovery == "manual")

    @overload
    async def astep(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        *args: Any,
        atomic: bool = ...,
        recovery: Recovery = ...,
    ) -> R: ...
    @overload
    async def astep(
        self, name: str, function: Callable[..., R], *args: Any, atomic: bool = ..., recovery: Recovery = ...
    ) -> R: ...
    async def astep(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        atomic: bool = False,
        recovery: Recovery = "repeat",
    ) -> Any:
        """The ``async`` variant of ``step``.  ``function`` may be async, but not of an atomic step."""
        if not iscoroutinefunction(function):
            call = partial(_within_coroutine, function)
            return await sync_to_async(self._step)(name, call, *args, atomic=atomic, recovery=recovery)
        if atomic:
            message = (
                f"The step {name!r} is atomic and its function async, but Django's transactions do not work in async "
                "code: pass a function that is not async."
            )
            raise InvalidStep(message)
        if await sync_to_async(self.steps.begin)(name):
            return await sync_to_async(self.steps.result)(name)
        await sync_to_async(self._ask_before_repeating)(name, atomic=False, recovery=recovery)
        return await self.steps.arun(name, partial(function, *args), is_manual=recovery == "manual")

    def _ask_before_repeating(self, name: str, *, atomic: bool, recovery: Recovery) -> None:
        if recovery not in ("repeat", "manual"):
            message = f"recovery must be 'repeat' or 'manual', not {recovery!r}."
            raise InvalidStep(message)
        if recovery == "manual" and atomic:
            message = f"The step {name!r} is atomic, so it has happened or not: leave recovery='manual' out."
            raise InvalidStep(message)
        begun = self.steps.unended(name)
        if begun is None:
            return
        # Only the name is cut off: each death is a question of its own.
        attempt = f" of attempt {begun}"
        asked = f"{REPEAT}{name}".encode()[: MAX_NAME_BYTES - len(attempt)].decode(errors="ignore") + attempt
        details = {"step": name, "question": QUESTION}
        if not self.approval(asked, show=details):
            message = f"The step {name!r} began in attempt {begun}, has no recorded end, and is not to be repeated."
            raise StepNotRepeated(message)

    # Waits

    @_awaited_as("asleep")
    def sleep(self, name: str, duration: dt.timedelta) -> None:
        """Suspends the task for ``duration``, counted from the first attempt that comes here.

        Also one of 0 or less is a wait, which has ended when the next attempt begins.
        """
        self._sleep(name, Wait(name=name, delay_ms=_delay_ms(duration, "duration")))

    @_awaited_as("asleep_until")
    def sleep_until(self, name: str, when: dt.datetime) -> None:
        """Suspends the task until ``when``."""
        self._sleep(name, Wait(name=name, until=_until(when)))

    def _sleep(self, name: str, wait: Wait) -> None:
        if self.steps.begin(name):
            return
        until = self.steps.until(name, "sleep")
        if until is None:
            raise self.steps.suspended(wait)
        if not self.steps.is_over(until):
            raise self.steps.suspended(Wait(name=name, until=until))

    @_awaited_as("await_for_event")
    def wait_for_event(self, name: str, timeout: dt.timedelta | None = None) -> Any:
        """Suspends the task until the event ``name`` has been emitted, and returns its payload.

        Returns None after ``timeout``, counted from the first attempt that comes here: no payload is None.
        """
        delay_ms = None if timeout is None else _delay_ms(timeout, "timeout")
        return self._wait(Wait(name=name, kind="event", event=event_name(name), delay_ms=delay_ms))

    @_awaited_as("aapproval")
    def approval(self, name: str, to: str | None = None, show: Any = None) -> Decision:
        """Suspends the task until a person has decided in the admin.

        ``to``: the permission that this person needs, such as ``"shop.approve_export"``; without it, that to run
        messages.  ``show``: what the person is shown, as JSON.  The decision is true if it approves.
        """
        if to is not None and not (names.is_name(to) and 0 < to.find(".") < len(to) - 1):
            message = f"to={to!r} is not the name of a permission, such as 'shop.approve_export'."
            raise InvalidStep(message)
        details = None if show is None else content.encode(show, max_bytes=self.max_bytes, what="show")
        event = event_of(self.message.id, name)
        decided = self._wait(Wait(name=name, kind="approval", event=event, permission=to, details=details))
        return Decision.of(decided)

    def _wait(self, wait: Wait) -> Any:
        name, event = wait.name or "", wait.event or ""
        if self.steps.begin(name):
            return self.steps.result(name)
        payload = functions.event_payload(self.steps.connection, event)
        if payload is not None:
            self.steps.record(name, payload, kind=wait.kind)
            return content.read(payload, f"the payload of the event {event!r}")
        until = self.steps.until(name, wait.kind)
        if until is not None and self.steps.is_over(until):
            self.steps.record(name, "null", kind=wait.kind)
            return None
        if self.steps.waits(name, wait.kind):  # the time-out counts from the first wait on
            wait = Wait(name=name, kind=wait.kind, event=event, until=until)
        raise self.steps.suspended(wait)

    # Children

    @_awaited_as("aenqueue")
    def enqueue(self, task: GenericTask[P, Any], *args: P.args, **kwargs: P.kwargs) -> EnqueuedChild:
        """Enqueues a task once, as a child of this message; ``task.enqueue_in(context, …)`` does the same."""
        return self.steps.enqueue(task, args, kwargs)

    @_awaited_as("agather")
    def gather(self, children: Iterable[EnqueuedChild | int], *, return_exceptions: bool = False) -> list[Any]:
        """Suspends the task until its children have ended, and returns what they returned, in the same order.

        Raises ChildFailed for the first child that did not succeed.  ``return_exceptions``: it is in the list instead.
        """
        ids = [id_of(child) for child in children]
        self.steps.require_outside("gather")
        outcomes = functions.child_outcomes(self.steps.connection, self.message, ids) if ids else []
        waiting = tuple(outcome.id for outcome in outcomes if outcome.status == "waiting")
        if waiting:
            raise self.steps.suspended(Wait(after_ids=waiting[:MAX_IDS]))  # then it looks after the others
        ended = [outcome_of(outcome, self.message.id) for outcome in outcomes]
        if not return_exceptions:
            for value in ended:
                if isinstance(value, Exception):
                    raise value
        return ended

    @_awaited_as("acall")
    def call(self, task: GenericTask[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Enqueues a task once, suspends this one until it has ended, and returns what it returned."""
        returned: R = self.gather([self.enqueue(task, *args, **kwargs)])[0]
        return returned

    # Budgets

    @_awaited_as("aspend")
    def spend(self, name: str, amount: float | Decimal, *, of: float | Decimal) -> Decimal:
        """Spends ``amount`` of a budget that the message has for all of its attempts, and returns what is left.

        Each call spends, also in a later attempt.  Raises BudgetExceeded, and spends nothing, if that would be more
        than ``of``.
        """
        self.steps.require_open(name)
        names.name_of("budget", name, InvalidStep)
        asked, limit = _decimal(amount, "amount"), _decimal(of, "of")
        if asked < 0:
            message = f"amount={amount!r} is below 0."
            raise InvalidStep(message)
        spent = functions.budget_spend(self.steps.connection, self.message, name, amount=asked, limit=limit)
        if not spent.is_held:
            raise self.steps.lost()
        if not spent.is_spent:
            message = f"The budget {name!r} has {limit - spent.spent} left of {of}: {amount} is too much."
            raise BudgetExceeded(message)
        return limit - spent.spent

    # For async tasks

    async def asleep(self, name: str, duration: dt.timedelta) -> None:
        """The ``async`` variant of ``sleep``."""
        await sync_to_async(self.sleep)(name, duration)

    async def asleep_until(self, name: str, when: dt.datetime) -> None:
        """The ``async`` variant of ``sleep_until``."""
        await sync_to_async(self.sleep_until)(name, when)

    async def await_for_event(self, name: str, timeout: dt.timedelta | None = None) -> Any:  # noqa: ASYNC109 -- as the other
        """The ``async`` variant of ``wait_for_event``."""
        return await sync_to_async(self.wait_for_event)(name, timeout)

    async def aapproval(self, name: str, to: str | None = None, show: Any = None) -> Decision:
        """The ``async`` variant of ``approval``."""
        return await sync_to_async(self.approval)(name, to, show)

    async def aenqueue(self, task: GenericTask[P, Any], *args: P.args, **kwargs: P.kwargs) -> EnqueuedChild:
        """The ``async`` variant of ``enqueue``."""
        return await sync_to_async(self.enqueue)(task, *args, **kwargs)

    async def agather(self, children: Iterable[EnqueuedChild | int], *, return_exceptions: bool = False) -> list[Any]:
        """The ``async`` variant of ``gather``."""
        return await sync_to_async(self.gather)(children, return_exceptions=return_exceptions)

    async def acall(self, task: GenericTask[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The ``async`` variant of ``call``."""
        return await sync_to_async(self.call)(task, *args, **kwargs)

    async def aspend(self, name: str, amount: float | Decimal, *, of: float | Decimal) -> Decimal:
        """The ``async`` variant of ``spend``."""
        return await sync_to_async(self.spend)(name, amount, of=of)


def _within_coroutine(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function.  Its StopIteration is a RuntimeError, as in a coroutine: a future takes none, and who awaits it
    would wait for ever.
    """
    try:
        return function(*args)
    except StopIteration as error:
        message = "the function of the step raised StopIteration"
        raise RuntimeError(message) from error


def _delay_ms(value: Any, what: str) -> int:
    if not isinstance(value, dt.timedelta):
        message = f"{what} is {quote(value)}: it must be a timedelta, such as timedelta(minutes=5)."
        raise InvalidStep(message)
    return times.milliseconds(value)


def _until(when: Any) -> int:
    if not isinstance(when, dt.datetime):
        message = f"when is {quote(when)}: it must be a datetime with a time zone."
        raise InvalidStep(message)
    if times.lacks_zone(when):
        message = (
            f"when is {when!r}, without a time zone: pass timezone.make_aware(...), or timezone.now() + a timedelta."
        )
        raise InvalidStep(message)
    return times.not_before(when)


def _decimal(value: Any, what: str) -> Decimal:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        found = Decimal(value) if isinstance(value, int) else Decimal(str(value))
        exponent = found.as_tuple().exponent
        if isinstance(exponent, int) and found.adjusted() < MAX_DIGITS and exponent >= -MAX_DIGITS:
            return found
    message = f"{what} is {quote(value)}: it must be a number of up to {MAX_DIGITS} digits on each side of the point."
    raise InvalidStep(message)
