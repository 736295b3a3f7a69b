"""The loop of a consumer, without a database."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from django_pgqueue.consumer.loop import MAX_WAIT_SECONDS, Loop
from django_pgqueue.consumer.polling import Polling
from django_pgqueue.consumer.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator


class NotedWakeup(Wakeup):
    """Waits for nothing, and knows for how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float, *files: int) -> set[int]:  # noqa: ARG002
        self.waits.append(seconds)
        return set()


@pytest.fixture
def wakeup() -> Iterator[NotedWakeup]:
    wakeup = NotedWakeup()
    yield wakeup
    wakeup.close()


@pytest.fixture
def loop(wakeup: NotedWakeup) -> Loop:
    session = cast("Any", SimpleNamespace(reopen_if_due=lambda: False, is_closed=False))
    return Loop(session, Polling(listen=True), wakeup, on_reconnect=lambda: None)


def test_the_loop_does_not_wait_for_an_action_that_is_due(loop: Loop, wakeup: NotedWakeup) -> None:
    loop.turn(lambda: None, time.monotonic)
    assert wakeup.waits == []
    assert not wakeup.is_waiting


def test_a_wait_has_an_end(loop: Loop, wakeup: NotedWakeup) -> None:
    loop.turn(lambda: None, lambda: float("inf"))
    assert wakeup.waits == [MAX_WAIT_SECONDS]
