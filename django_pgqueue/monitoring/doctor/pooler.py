"""Finds a pooler that gives each transaction another session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.consumer.connection import connect
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

TRANSACTION_POOLER = Kind(
    "transaction-pooler",
    Severity.ERROR,
    "In this mode, LISTEN and prepared statements are lost at the end of a transaction: idle workers receive no "
    'notification, and statements fail. Connect the workers to PostgreSQL directly, or set {"OPTIONS": {"LISTEN": '
    "False}} in TASKS.",
)

PID = "select pg_backend_pid()"


def mode(patient: Subject) -> Iterator[Finding]:
    """Opens two connections: if each has its own session, they never use the same process of the server."""
    listening = [backend.alias for backend in patient.backends if backend.settings.listen]
    if not listening:
        return
    with connect(patient.using, pooled=True) as one, connect(patient.using, pooled=True) as other:
        first = _pid(one)
        with other.transaction():
            meanwhile = _pid(other)
            second = _pid(one)
    if first != second or meanwhile == first:
        yield TRANSACTION_POOLER.found(
            f"A pooler in transaction mode is in front of the database {patient.using!r}: one connection used the "
            f"processes {first} and {second} of the server, and another connection used {meanwhile} in between. "
            f"Workers of the backends {', '.join(map(repr, listening))} listen.",
            "",
            backends=listening,
            pids=[first, meanwhile, second],
        )


def _pid(connection: object) -> int:
    return int(connection.execute(PID).fetchone()[0])  # type: ignore[attr-defined]
