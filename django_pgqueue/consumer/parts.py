"""The parts of a consumer's turn, each of which may fail without harm to the others."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue.consumer.errors import BUSY_ERRORS, first_line, is_of_the_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.consumer.session import Session

logger = logging.getLogger("django_pgqueue.worker")

NOT_DUE = object()
"""Returned by a part that had nothing to do yet: that does not mean that it works again."""

MIN_POSTPONE_SECONDS, MAX_POSTPONE_SECONDS = 0.1, 10.0
FAILURES = 3
"""The second claim after an error takes one message at a time, and fails the one that it is about."""
APART_SECONDS = 60.0
"""After an error in a transaction of several parts, each is a transaction of its own for this long, so that none of
them undoes the others."""


ROLES = " (sql/roles.sql says which role may)"


@dataclass(slots=True)
class Postponed:
    """A part that has failed."""

    until: float = 0.0
    seconds: float = MIN_POSTPONE_SECONDS
    problem: str | None = None
    failures: int = 0


class Parts:
    """Called by the consumer's thread alone, for each part of a turn."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.are_together = False
        """The parts run in one transaction now."""
        self._postponed: dict[str, Postponed] = {}
        self._apart_until = 0.0

    def do(self, part: str, work: Callable[[], object]) -> None:
        """Does a part.  Its error is raised only if the connection is to blame.  Any other error is logged once, until
        the part works again, and the part is left out for a while.  ``work`` may return NOT_DUE.
        """
        postponed = self._postponed.get(part)
        if postponed is not None and time.monotonic() < postponed.until and not self.are_together:
            return
        try:
            was_due = work() is not NOT_DUE
        except (psycopg.Error, UnicodeError) as error:
            if self.are_together or is_of_the_connection(self.session.connection, error):
                raise
            self._postpone(part, error)
        else:
            if postponed is not None and was_due and not self.are_together:
                del self._postponed[part]

    def leave_none_out(self) -> None:
        """Lets each part be tried again at once: the process leaves."""
        for postponed in self._postponed.values():
            postponed.until = 0.0

    @contextmanager
    def together(self, *, wanted: bool) -> Iterator[None]:
        """Runs the parts inside in one transaction, where that is ``wanted`` and has not failed lately."""
        if not wanted or time.monotonic() < self._apart_until:
            yield
            return
        self.are_together = True
        try:
            with self.session.transaction():
                yield
        except (psycopg.Error, UnicodeError):
            self._apart_until = time.monotonic() + APART_SECONDS
            raise
        finally:
            self.are_together = False

    def due_at(self, part: str, at: float) -> float:
        """Returns when a part is due: ``at``, or later if it has failed."""
        postponed = self._postponed.get(part)
        return at if postponed is None else max(at, postponed.until)

    def fails_again(self, part: str) -> bool:
        """Whether a part fails however it is tried, and not because others had locked something for a moment."""
        postponed = self._postponed.get(part)
        return postponed is not None and postponed.failures >= FAILURES

    @property
    def problems(self) -> list[str]:
        return [one.problem for one in self._postponed.values() if one.problem is not None]

    def _postpone(self, part: str, error: Exception) -> None:
        postponed = self._postponed.setdefault(part, Postponed())
        if not isinstance(error, BUSY_ERRORS):
            postponed.failures += 1
            if postponed.problem is None:
                postponed.problem = f"{part}: {first_line(error)}"
                hint = ROLES if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
                logger.error("not possible worker=%s %s%s", self.session.consumer, postponed.problem, hint)
        postponed.until = time.monotonic() + postponed.seconds
        postponed.seconds = min(MAX_POSTPONE_SECONDS, 2 * postponed.seconds)
