"""Signals that are sent without a lock: whoever connects or leaves is heard or not, as ever."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from django.dispatch import Signal

from django_pgqueue.backend.signal_cache import cache_receivers


class Sender:
    """Sends."""


class Watched:
    """A lock that says whether it was taken."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.fixture
def signal() -> Signal:
    signal = Signal()
    cache_receivers([signal])
    return signal


@pytest.fixture
def heard() -> list[Any]:
    return []


@pytest.fixture
def receiver(heard: list[Any]) -> Any:
    def receive(sender: Any, **_: Any) -> None:
        heard.append(sender)

    return receive


@pytest.mark.parametrize("sender", [Sender, None, "a text", [1]], ids=["class", "none", "text", "list"])
def test_receivers_can_connect_and_disconnect_after_the_first_send(
    signal: Signal, receiver: Any, heard: list[Any], sender: Any
) -> None:
    assert signal.send(sender) == []
    signal.connect(receiver)
    signal.send(sender)
    signal.send_robust(sender)
    assert heard == [sender, sender]
    signal.disconnect(receiver)
    assert signal.send(sender) == []


def test_a_deleted_receiver_is_not_called(signal: Signal) -> None:
    def receive(**_: Any) -> int:
        return 1

    signal.connect(receive)
    assert len(signal.send(Sender)) == 1
    del receive
    gc.collect()
    assert signal.send(Sender) == []


def test_a_receiver_of_one_sender_gets_no_other(signal: Signal, receiver: Any, heard: list[Any]) -> None:
    signal.connect(receiver, sender=Sender)
    signal.send(Watched)
    signal.send(Sender)
    assert heard == [Sender]


def test_the_lock_is_taken_once_and_not_for_each_job(signal: Signal, receiver: Any, heard: list[Any]) -> None:
    signal.connect(receiver)
    watched: Any = Watched(signal.lock)
    signal.lock = watched
    for _ in range(10):
        signal.send(Sender)
    assert (len(heard), watched.taken) == (10, 1)


def test_a_signal_that_has_a_cache_keeps_it() -> None:
    signal = Signal(use_caching=True)
    cache = signal.sender_receivers_cache
    cache_receivers([signal])
    assert signal.sender_receivers_cache is cache
