"""A worker that dies is found by others, and none that comes back within the grace loses its job.

A worker that runs a job, another one that looks, the server, and time in ticks.  The worker may be stopped, be cut off,
and die at any time; the server may be restarted, and the network may keep both workers from it.  What stands for what:

====================  =============================================================================================
is seen               Registration.be_seen: pgqueue_worker_hold in a new session, and pgqueue_worker_seen(p_held)
comes back            Session.reopen_if_due, SOON ticks after it can at the latest, and MAX after a long break
judges                the first part of pgqueue_worker_expire: the row is GRACE ticks old, nobody holds the lock, and
                      the server, or the session that looks (Gone), is not younger than RETURN
takes                 the second part: the attempts are lost, and the other worker runs the job
ends                  pgqueue_message_complete with (id, attempt, worker)
somebody locks        a login that holds the worker's advisory lock alone, for ever
====================  =============================================================================================

A break of up to BLIP ticks, and any absence of the server, costs no job of a worker that did not stand still before.
The lock of the message never ends here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "whoever has no session is dead": "no grace",
    "whoever was not seen is dead": "no lock",
    "who looks takes the lock for a moment": "tries the lock",
    "a new session does not take the lock": "not again",
    "the pauses between tries to connect grow at once": "slow",
    "who looks does not know that the server was restarted": "restart forgotten",
    "who has just come back judges others": "own break forgotten",
    "an end is not fenced": "not fenced",
}
SEEN, BLIP, SOON, MAX = 1, 1, 1, 2
GRACE = SEEN + BLIP + SOON + 1
RETURN = MAX + 1


class State(NamedTuple):
    worker: str = "runs"  # runs, stopped, dead
    reach: bool = True
    """Its way to the server."""
    server: bool = True
    """The way of everybody to the server, or the server itself."""
    session: bool = True
    locked: bool = True
    """Its session holds the advisory lock."""
    registered: bool = True
    """Its row says that it holds it."""
    silent: int = 0
    """Ticks since it was seen."""
    broken: int = 0
    """Ticks of the present break."""
    waited: int = 0
    """Ticks for which it could have come back."""
    too_long: bool = False
    """A break was longer than any of which something is promised."""
    up: int = RETURN
    """Ticks since the server was started."""
    seen_since: bool = True
    """The worker was seen since then."""
    age: int = RETURN
    """Ticks since the session that looks was opened after a break."""
    restarted: bool = False
    """The last absence was that of the server."""
    looker: bool = True
    """It has a session."""
    judged: bool = False
    wronged: bool = False
    """It was judged though it lived, and its break was not too long."""
    trying: bool = False
    """It holds the lock for a moment (in a broken variant)."""
    stranger: bool = False
    job: str = "held"  # held, again, done, done twice
    troubles: int = 2
    """How many more things may go wrong."""


class Deaths:
    def __init__(self, variant: str = "true", *, troubles: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.troubles = troubles

    def first(self) -> State:
        return State(troubles=self.troubles)

    def wrong(self, state: State) -> str | None:
        if state.job == "done twice":
            return "the job has ended twice"
        if state.job == "again" and state.wronged:
            return "the job of a living worker runs again"
        return None

    def left(self, state: State) -> str | None:
        if state.worker == "dead" and state.job == "held" and not state.stranger:
            return "the job of a dead worker waits for its lock"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.troubles and state.job == "held":
            yield from self._trouble(state._replace(troubles=state.troubles - 1))
        yield from self._mend(state)
        yield from self._work(state)
        yield from self._look(state)
        yield from self._time(state)

    # What goes wrong

    def _trouble(self, state: State) -> Iterator[tuple[str, State]]:
        # Who stood still was not seen meanwhile, and has used the grace up.
        late = state.too_long or state.silent > SEEN
        gone = state._replace(session=False, locked=False, too_long=late)
        if state.worker == "runs":
            yield "perhaps the worker is stopped", state._replace(worker="stopped")
        if state.worker != "dead":
            yield "perhaps the worker is killed", gone._replace(worker="dead")
            if state.reach and state.server:
                yield "perhaps the worker is cut off", gone._replace(reach=False)
                yield "perhaps its session is ended", gone
        if state.server:
            nobody = gone._replace(server=False, looker=False, judged=False, trying=False, age=0)
            yield "perhaps the network is down", nobody._replace(restarted=False)
            yield "perhaps the server is restarted", nobody._replace(up=0, seen_since=False, restarted=True)
        if not state.locked and not state.stranger:
            yield "perhaps somebody locks its number", state._replace(stranger=True)

    def _mend(self, state: State) -> Iterator[tuple[str, State]]:
        if state.worker == "stopped":
            yield "the worker goes on", state._replace(worker="runs")
        if not state.reach:
            yield "the worker is cut off no more", state._replace(reach=True)
        if not state.server:
            yield "the server is there", state._replace(server=True)
        if state.server and not state.looker:
            yield "the one that looks comes back", state._replace(looker=True, age=0)
            if state.restarted:  # one that starts when only the network was down is left out: see decision 76
                yield "perhaps one that has just started looks", state._replace(looker=True, age=RETURN)

    # The worker

    def _work(self, state: State) -> Iterator[tuple[str, State]]:
        if state.worker != "runs" or not state.server or not state.reach:
            return
        if not state.session:
            came = state._replace(session=True, broken=0, waited=0)
            free = not state.stranger and not state.trying
            locked = free and self.broken != "not again"
            registered = locked or (self.broken == "not again" and state.registered)
            yield "the worker comes back", _seen(came._replace(locked=locked, registered=registered))
            return
        if state.silent:
            yield "the worker is seen", _seen(state)
        if state.job == "held":
            yield "perhaps the worker ends the job", state._replace(job="done")
        elif state.job == "again" and self.broken == "not fenced":
            yield "perhaps the worker ends the job", state._replace(job="done twice")

    # The one that looks

    def _look(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.looker or state.job != "held":
            return
        if state.judged:
            yield "the one that looks takes the job", state._replace(judged=False, job="again")
        elif state.trying:
            after = state._replace(trying=False)
            yield "the one that looks lets the lock go", _judge(after) if self._is_gone(state) else after
        elif self.broken == "tries the lock":
            if state.registered and state.silent >= GRACE and not state.locked and not state.stranger:
                yield "the one that looks has the lock", state._replace(trying=True)
        elif self._is_gone(state):
            yield "the one that looks judges", _judge(state)

    def _is_gone(self, state: State) -> bool:
        if not state.registered or (self.broken != "no grace" and state.silent < GRACE):
            return False
        if (state.locked or state.stranger) and self.broken != "no lock":
            return False
        if not state.seen_since and state.up < RETURN and self.broken != "restart forgotten":
            return False
        return state.age >= RETURN or self.broken == "own break forgotten"

    # Time

    def _time(self, state: State) -> Iterator[tuple[str, State]]:
        """Passes only when nobody is late: a worker that runs is seen, and comes back, in its time."""
        there = state.worker == "runs" and state.server and state.reach
        soon = SOON if state.broken < GRACE and self.broken != "slow" else MAX
        if there and state.session and state.silent >= SEEN:
            return
        if there and not state.session and state.waited >= soon:
            return
        if state.judged or state.trying:  # one statement
            return
        cut = (
            not state.session
            and state.worker != "dead"
            and state.server
            and (not state.reach or state.worker != "runs")
        )
        later = state._replace(
            silent=min(GRACE, state.silent + 1),
            broken=min(GRACE, state.broken + (not state.session)),
            waited=min(MAX, state.waited + 1) if there and not state.session else state.waited,
            too_long=state.too_long or (cut and state.broken >= BLIP),
            up=min(RETURN, state.up + 1) if state.server else state.up,
            age=min(RETURN, state.age + 1) if state.looker else state.age,
        )
        if later != state:
            yield "time passes", later


def _judge(state: State) -> State:
    return state._replace(judged=True, wronged=state.worker != "dead" and not state.too_long)


def _seen(state: State) -> State:
    return state._replace(silent=0, seen_since=True, too_long=False)
