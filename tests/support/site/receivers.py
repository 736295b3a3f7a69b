"""Receivers of the signals, as projects write them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_pgqueue.compat import task_enqueued, task_finished, task_started
from tests.support.site.jobs import write_effect
from tests.support.watching import statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNALS = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}


@contextmanager
def listening(signal: str, receiver: Callable[..., Any]) -> Iterator[None]:
    SIGNALS[signal].connect(receiver)
    try:
        yield
    finally:
        SIGNALS[signal].disconnect(receiver)


class Heard:
    """Receivers of one word, plain and async, and what they have heard; each of them writes a row."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        with (
            listening("started", self.started),
            listening("finished", self.finished),
            listening("started", self.astarted),
            listening("finished", self.afinished),
        ):
            yield

    def started(self, task_result: Any, **_: Any) -> None:
        self.note("started, plain", task_result)

    def finished(self, task_result: Any, **_: Any) -> None:
        self.note("finished, plain", task_result)

    async def astarted(self, task_result: Any, **_: Any) -> None:
        await self.anote("started, async", task_result)

    async def afinished(self, task_result: Any, **_: Any) -> None:
        await self.anote("finished, async", task_result)

    async def anote(self, word: str, task_result: Any) -> None:
        error = sys.exc_info()[0]
        await sync_to_async(self.note)(word, task_result, error=error)

    def note(self, word: str, task_result: Any, error: Any = None) -> None:
        error = error or sys.exc_info()[0]
        write_effect(word)
        self.said.append(
            {
                "word": word,
                "status": str(task_result.status),
                "errors": len(task_result.errors),
                "attempts": task_result.attempts,
                "error": error and error.__name__,
                "history": statuses(task_result),
                "in transaction": connection.in_atomic_block,
                "thread": threading.current_thread().name,
            }
        )

    def of(self, word: str, *names: str) -> list[Any]:
        found = [said for said in self.said if said["word"].startswith(word)]
        return [tuple(said[name] for name in names) for said in found]

    def words(self) -> Counter[str]:
        return Counter(said["word"] for said in self.said)


def leave_a_transaction_open(**_: Any) -> None:
    transaction.atomic().__enter__()
    write_effect("of the receiver")


def raise_an_error(**_: Any) -> None:
    raise OSError("no network")


async def raise_an_error_async(**_: Any) -> None:
    raise OSError("no network")


def want_to_leave(**_: Any) -> None:
    raise SystemExit(6)


async def want_to_leave_async(**_: Any) -> None:
    raise SystemExit(6)
