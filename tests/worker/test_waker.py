"""Wakeup: what ends the wait of a consumer."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from django_pgqueue.consumer.wakeup import Wakeup

if TYPE_CHECKING:
    import pytest


def test_it_ends_a_wait_and_may_be_used_when_it_is_closed() -> None:
    waker = Wakeup()
    waker.wake()
    assert waker.wait(30) == set()
    waker.close()
    waker.wake()


def test_who_closes_lets_who_is_just_waking_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    waker, write = Wakeup(), os.write
    begun, may_write = threading.Event(), threading.Event()
    written: list[int] = []

    def write_late(file: int, text: bytes) -> int:
        if file == waker._write:
            begun.set()
            may_write.wait(30)
            written.append(write(file, text))
            return written[-1]
        return write(file, text)

    monkeypatch.setattr(os, "write", write_late)
    waking, closing = threading.Thread(target=waker.wake), threading.Thread(target=waker.close)
    waking.start()
    assert begun.wait(30)
    closing.start()
    closing.join(0.1)  # long enough to close it, if nothing held it back
    may_write.set()
    for thread in (waking, closing):
        thread.join(30)
    assert written == [1]
