"""Wakeup: what ends the wait of a consumer."""

from __future__ import annotations

import socket
import threading
from typing import cast

import pytest

from django_pgqueue.consumer.wakeup import Wakeup


def test_wake_ends_a_wait_and_may_be_called_after_close() -> None:
    waker = Wakeup()
    waker.wake()
    assert waker.wait(30) == set()
    waker.close()
    waker.wake()


def test_the_numbers_of_its_files_may_be_large() -> None:
    """A process with many open files gives such numbers, also to a connection that is opened again."""
    resource = pytest.importorskip("resource")
    fcntl = pytest.importorskip("fcntl")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2048:
        pytest.skip("no more files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    waker = Wakeup()
    try:
        sender, near = socket.socketpair()
        with sender, near, socket.socket(fileno=fcntl.fcntl(near, fcntl.F_DUPFD, 1024)) as far:
            sender.send(b"!")
            assert waker.wait(30, far.fileno()) == {far.fileno()}
    finally:
        waker.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


def test_close_waits_for_a_wake_in_progress() -> None:
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
