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
        processes = [described(said, lock_seconds=lock_seconds, now=now) for said in board.said]
        states = {process["state"] for process in processes} - {"retiring"}
        return cls(
            alive=not stalled and not states & {"stuck", "broken"},
            ready=not stalled and not above.stopping and states == {"working"},
            status="stuck" if stalled else _worst(states, stopping=above.stopping),
            supervisor={"pid": above.pid, "turned_seconds_ago": _ago(above.turned, now), "stopping": above.stopping},
            processes=processes,
        )


def described(said: ProcessReport, *, lock_seconds: float, now: float) -> dict[str, Any]:
    return {
        "pid": said.pid or None,
        "state": state(said, patience=max(lock_seconds, MIN_PATIENCE_SECONDS), now=now),
        "connected": said.connected,
        "running": said.running,
        "started_seconds_ago": _ago(said.started, now),
        "turned_seconds_ago": _ago(said.turned, now),
        "dequeued_seconds_ago": _ago(said.looked, now),
        "event_loop_blocked_seconds": round(said.blocked_seconds, 3),
        "slots_died": said.died,
    }


def state(said: ProcessReport, *, patience: float, now: float) -> str:
    """Returns the state in a word.

    A process that makes no turn within the time of a lock is stuck: it neither claims nor records.  While the database
    is away that is not the fault of the process, and another one would fare no better.
    """
    if not said.pid:
        return "gone"
    if not said.turned:
        return "starting"
    if not said.connected:
        return "disconnected"
    if now - said.turned > patience:
        return "stuck"
    if said.stopping or said.retiring:
        return "stopping" if said.stopping else "retiring"
    return _state_of_slots(said, patience=patience)


def _state_of_slots(said: ProcessReport, *, patience: float) -> str:
    """Returns the state that the slots give.  A process whose slot has died is replaced, unless too many retire
    already: then a restart helps.  Only its timeout ends a task that blocks the event loop: a restart would end it,
    with all others, and begin it again.
    """
    if said.died:
        return "broken"
    if said.blocked_seconds > patience:
        return "blocked"
    return "working" if said.looked else "starting"


WORST_FIRST = ("stuck", "broken", "disconnected", "gone", "blocked", "starting", "stopping")


def _worst(states: set[str], *, stopping: bool) -> str:
    found = [state for state in WORST_FIRST if state in states]
    if stopping and "stuck" not in states:
        return "stopping"
    return found[0] if found else "ok"


def _ago(moment: float, now: float) -> float | None:
    return round(max(0.0, now - moment), 3) if moment else None
