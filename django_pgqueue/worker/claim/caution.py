"""How a worker claims after a claim whose answer could not be sent or read: one message, then two, then four."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS, is_of_the_connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Token


class Caution:
    """Called by the claimer, in the process's thread.

    Where one row of a claim cannot be sent, because its text is larger than PostgreSQL or this process can hold, the
    statement fails for all of them.  ``limit`` is the largest number for the next claim, which is to read with care;
    None: no caution is needed.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.limit: int | None = None
        self._unanswered: set[str] = set()
        """The names under which this worker may hold messages of which it knows nothing."""

    @property
    def is_unanswered(self) -> bool:
        """Whether an earlier claim may have locked messages of which this worker knows nothing."""
        return bool(self._unanswered)

    def failed(self, error: Exception, *, worker: str) -> None:
        """Takes note of a claim that has failed.  The server may have committed it all the same."""
        self._unanswered.add(worker)
        if not isinstance(error, BUSY_ERRORS) and not is_of_the_connection(self.session.connection, error):
            self.limit = 1

    def commits(self, *, worker: str) -> None:
        """Takes note of a claim in a transaction of several parts: the answer to its commit is still to come."""
        self._unanswered.add(worker)

    def committed(self, *, worker: str) -> None:
        self._unanswered.discard(worker)

    def claimed(self, found: int, unreadable: int) -> None:
        """Takes note of a claim that has been read."""
        if self.limit is None:
            return
        if unreadable:
            self.limit = 1
        elif found < self.limit:
            self.limit = None
        else:
            self.limit *= 2

    def give_back(self, held: Iterable[int], unreadable: Iterable[Token]) -> None:
        """Gives back what earlier claims have locked without an answer: nothing of it has begun."""
        known = [*held, *(token.id for token in unreadable)]
        while self._unanswered:
            worker = next(iter(self._unanswered))
            functions.message_release_others(self.session.statements, known, worker=worker)
            self._unanswered.discard(worker)


def memory_error() -> psycopg.Error:
    return psycopg.DatabaseError("out of memory for the messages of a claim")
