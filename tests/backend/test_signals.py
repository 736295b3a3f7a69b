"""Who receives the signals of tasks."""

from __future__ import annotations

from typing import Any

from django_pgqueue.backend import signals
from django_pgqueue.compat import task_started


def test_a_receiver_besides_django_s_own_is_seen() -> None:
    def receive(**_: Any) -> None:
        pass

    assert not signals.has_receivers(task_started)
    task_started.connect(receive)
    try:
        assert signals.has_receivers(task_started)
    finally:
        task_started.disconnect(receive)
