"""The exception by which a durable task leaves its slot while it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.functions import Wait


class Suspension(BaseException):
    """Ends an attempt as suspended.  It is no Exception, so that no ``except Exception`` in a task catches it."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)
        self.wait = wait
