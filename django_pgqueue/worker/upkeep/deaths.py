"""Deaths of processes: the next process that starts ends what they held."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.errors import first_line, is_of_the_connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.consumer.session import Session
    from django_pgqueue.worker.run.marks import Death, Marks

logger = logging.getLogger("django_pgqueue.worker")


def report(session: Session, deaths: Iterable[Death], marks: Marks) -> None:
    """Records the deaths.  If the database is away, this process ends, and the next one tries again."""
    for death in deaths:
        try:
            lost = functions.worker_died(
                session.statements, death.worker, ids=death.ids, attempts=death.attempts, running=death.running
            )
        except psycopg.Error as error:
            if is_of_the_connection(session.connection, error):
                raise
            # The locks run out all the same, and every message has a last attempt.
            logger.error("database error worker=%s: its messages cannot be ended: %s", death.worker, first_line(error))  # noqa: TRY400
        else:
            ran = [n for n, running in zip(death.ids, death.running, strict=True) if running]
            logger.warning("died worker=%s lost=%s ran=%s", death.worker, lost, ",".join(map(str, ran)) or "nothing")
        marks.reported(death)
