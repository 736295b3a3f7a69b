"""Whether a worker is well, for programs that restart it when it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.worker.health.shared_state import ProcessReport, SharedState

SUPERVISOR_SECONDS = 30.0
"""A supervisor makes a turn every second."""
MIN_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``alive``: a restart would not help.  ``ready``: it takes jobs."""

    alive: bool
    ready: bool
    status: str
    supervisor: dict[str, Any]
    processes: list[dict[str, Any]]

    @property
    def body(self) -> dict[str, Any]:
        return {"status": self.status, **self.supervisor, "processes": self.processes}

    @classmethod
    def of(cls, board: SharedState, *, lock_seconds: float, now: float) -> Health:
        above = board.supervisor
        stalled = now - above.turned > SUPERVISOR_SECONDS
        processes = [described(report, lock_seconds=lock_seconds, now=now) for report in board.reports]
        states = {process["state"] for process in processes} - {"retiring"}
        return cls(
            alive=not stalled and not states & {"stuck", "broken"},
            ready=not stalled and not above.stopping and states == {"working"},
            status="stuck" if stalled else _worst(states, stopping=above.stopping),
            supervisor={"pid": above.pid, "turned_seconds_ago": _ago(above.turned, now), "stopping": above.stopping},
            processes=processes,
        )


def described(report: ProcessReport, *, lock_seconds: float, now: float) -> dict[str, Any]:
    return {
        "pid": report.pid or None,
        "state": state(report, patience=max(lock_seconds, MIN_PATIENCE_SECONDS), now=now),
        "connected": report.connected,
        "running": report.running,
        "started_seconds_ago": _ago(report.started, now),
        "turned_seconds_ago": _ago(report.turned, now),
        "dequeued_seconds_ago": _ago(report.looked, now),
        "event_loop_blocked_seconds": round(report.blocked_seconds, 3),
        "slots_died": report.died,
    }


def state(report: ProcessReport, *, patience: float, now: float) -> str:
    """Returns the state in a word.

    A process that makes no turn within the time of a lock is stuck: it neither claims nor records.  While the database
    is away that is not the fault of the process, and another one would fare no better.
    """
    if not report.pid:
        return "gone"
    if not report.turned:
        return "starting"
    if not report.connected:
        return "disconnected"
    if now - report.turned > patience:
        return "stuck"
    if report.stopping or report.retiring:
        return "stopping" if report.stopping else "retiring"
    return _state_of_slots(report, patience=patience)


def _state_of_slots(report: ProcessReport, *, patience: float) -> str:
    """Returns the state that the slots give.  A process whose slot has died is replaced, unless too many retire
    already: then a restart helps.  Only its timeout ends a task that blocks the event loop: a restart would end it,
    with all others, and begin it again.
    """
    if report.died:
        return "broken"
    if report.blocked_seconds > patience:
        return "blocked"
    return "working" if report.looked else "starting"


WORST_FIRST = ("stuck", "broken", "disconnected", "gone", "blocked", "starting", "stopping")


def _worst(states: set[str], *, stopping: bool) -> str:
    found = [state for state in WORST_FIRST if state in states]
    if stopping and "stuck" not in states:
        return "stopping"
    return found[0] if found else "ok"


def _ago(moment: float, now: float) -> float | None:
    return round(max(0.0, now - moment), 3) if moment else None
