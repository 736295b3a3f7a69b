"""Wakeup: what ends the wait of a consumer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from django_pgqueue.consumer.wakeup import Wakeup

if TYPE_CHECKING:
    import socket


def test_it_ends_a_wait_and_may_be_used_when_it_is_closed() -> None:
    waker = Wakeup()
    waker.wake()
    assert waker.wait(30) == set()
    waker.close()
    waker.wake()


class Late:
    """A socket that sends when it may."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.begun, self.may_send = threading.Event(), threading.Event()
        self.sent: list[int] = []

    def send(self, text: bytes) -> int:
        self.begun.set()
        self.may_send.wait(30)
        self.sent.append(self.real.send(text))
        return self.sent[-1]

    def close(self) -> None:
        self.real.close()


def test_who_closes_lets_who_is_just_waking_finish() -> None:
    waker = Wakeup()
    late = Late(waker._write)
    waker._write = cast("socket.socket", late)
    waking, closing = threading.Thread(target=waker.wake), threading.Thread(target=waker.close)
    waking.start()
    assert late.begun.wait(30)
    closing.start()
    closing.join(0.1)  # long enough to close it, if nothing held it back
    late.may_send.set()
    for thread in (waking, closing):
        thread.join(30)
    assert late.sent == [1]
