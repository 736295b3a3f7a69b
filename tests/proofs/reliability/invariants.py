"""What must hold of a log, each by itself.  A function answers its violations, as sentences."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.proofs.reliability import bystanders, durable_invariants, zones
from tests.proofs.reliability.tasks import ATOMIC, BACKOFF_SECONDS, BROUGHT, INNOCENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proofs.reliability.log import Change, Log

    Invariant = Callable[[Log], Iterator[str]]

INVARIANTS: list[Invariant] = []
ATTEMPTS_WITHOUT_A_NUMBER = 5
LATE_LOOK_SECONDS, MAX_LATE_LOOKS = 0.55, 0.5
"""A sleeper that does not look once more polls after 0.8 to 1.2 seconds.  A few looks may be late on a busy machine."""
KILLED, LEFT, NO_DATABASE = -9, 3, 70
"""Exit codes: a SIGKILL, ``os._exit`` of the task ``leave``, and a worker that cannot connect when it starts."""
MIN_WAITS, MAX_TIMES = 500, 3.0
OUT_OF_REACH = 2**63 - 2
"""What is parked, and above it what waits for others, or is quarantined."""
DUE_MS = 5.0
MAX_DEAD_ROWS = 5000
"""What autovacuum leaves (2000 and two per cent), and what came since it last looked."""
RESTART_SECONDS = 5.0
MAX_HELD_SECONDS = 120.0
"""The longest task, 30 seconds for a backoff that does not return, and as many without PostgreSQL."""


def invariant(function: Invariant) -> Invariant:
    INVARIANTS.append(function)
    return function


@invariant
def no_committed_enqueue_is_lost(log: Log) -> Iterator[str]:
    inserted = {change.message_id for change in log.changes if change.op == "I"}
    ended = {end.message_id for end in log.ends if end.final}
    committed = {token for token, _ in log.enqueued}
    for token in sorted(log.acknowledged - committed):
        yield f"the enqueue of token {token} was acknowledged, and is not there"
    for token, message_id in log.enqueued:
        if message_id not in inserted:
            yield f"message {message_id} of token {token} was committed, and never was in the queue"
    for message_id in sorted(inserted - ended - set(log.remaining)):
        yield f"message {message_id} was in the queue, and is gone without an end"
    for message_id in sorted(ended - inserted):
        yield f"message {message_id} has ended, and never was in the queue"


@invariant
def nothing_that_was_rolled_back_runs(log: Log) -> Iterator[str]:
    ids = {change.message_id: change.token for change in log.changes if change.op == "I"}
    tokens = {token for token in ids.values() if token is not None}
    for token in sorted(log.rolled_back & tokens):
        yield f"token {token} was rolled back, and is in the queue"
    for run in log.runs:
        if run.token in log.rolled_back:
            yield f"token {run.token} was rolled back, and ran as message {run.message_id}"
        elif run.message_id not in ids:
            yield f"message {run.message_id} ran, and was never committed"


@invariant
def atomic_effects_happen_exactly_once(log: Log) -> Iterator[str]:
    effects = Counter(effect.message_id for effect in log.effects)
    for end in log.ends:
        if not end.final or not is_atomic(end.task):
            continue
        wanted, found = int(end.status == "succeeded"), effects[end.message_id]
        if found != wanted:
            yield f"message {end.message_id} {end.status}, and its effect is there {found} times instead of {wanted}"


def is_atomic(task: str | None) -> bool:
    return task is not None and task.rpartition(".")[2] in ATOMIC


@invariant
def other_effects_happen_at_least_once(log: Log) -> Iterator[str]:
    effects = {effect.message_id for effect in log.effects}
    ran = {run.message_id for run in log.runs}
    for end in log.ends:
        if end.status != "succeeded" or end.task is None:
            continue
        if end.message_id not in ran:
            yield f"message {end.message_id} succeeded, and never ran"
        if end.task.endswith(".note") and end.message_id not in effects:
            yield f"message {end.message_id} succeeded without its effect"


@invariant
def innocent_jobs_do_not_fail(log: Log) -> Iterator[str]:
    """Those that somebody enqueued as calls of tasks that end well; messages that are no call have no token."""
    called = {change.message_id for change in log.changes if change.op == "I" and change.token is not None}
    for end in log.ends:
        name = (end.task or "").rpartition(".")[2]
        if end.status == "failed" and end.final and name in INNOCENT and end.message_id in called:
            yield f"message {end.message_id} ({name}) failed with {end.error_class}, at attempt {end.attempt}"


@invariant
def locked_rows_cost_no_other_job_its_lock(log: Log) -> Iterator[str]:
    lost = {end.message_id for end in log.ends if end.status == "lost"}
    for message_id in log.innocents:
        if message_id in lost:
            yield f"message {message_id} was lost: its worker renewed no lock beside rows that another session kept"


@invariant
def no_job_ends_because_a_worker_did_not_know_it(log: Log) -> Iterator[str]:
    """Whatever was rolled out, in which order: what the application enqueued is known to somebody in the end."""
    called = {change.message_id for change in log.changes if change.op == "I" and change.token is not None}
    for end in log.ends:
        if end.final and end.message_id in called and (end.error_class or "").endswith(".UnknownTask"):
            yield f"message {end.message_id} ({end.task}) {end.status} because a worker did not know it"


@invariant
def no_attempt_is_used_up_by_a_rollout(log: Log) -> Iterator[str]:
    """A worker that has another version of a task gives its message back before it calls anything."""
    called = {change.message_id for change in log.changes if change.op == "I" and change.token is not None}
    for end in log.ends:
        name, error = ((whole or "").rpartition(".")[2] for whole in (end.task, end.error_class))
        if name in BROUGHT and error in {"TypeError", "UnknownTask"} and end.message_id in called:
            yield f"attempt {end.attempt} of message {end.message_id} ({name}) was used up by a {error}"


@invariant
def only_one_attempt_holds_a_message(log: Log) -> Iterator[str]:
    """Row by row: a lock begins where there is none, and with the next number."""
    for message_id, changes in by_message(log).items():
        for before, after in pairwise(changes):
            if after.op != "U" or after.worker is None or after.worker == before.worker:
                continue
            if before.worker is not None:
                yield f"message {message_id} was taken by {after.worker} while {before.worker} held it"
            if after.attempt != before.attempt + 1:
                yield f"message {message_id}: attempt {after.attempt} came after {before.attempt}"


@invariant
def no_attempt_holds_a_message_for_ever(log: Log) -> Iterator[str]:
    """Whatever hangs in it, or in what the worker calls when its time is up."""
    for message_id, changes in by_message(log).items():
        for before, after in pairwise(changes):
            if before.worker is not None and after.at - before.at > MAX_HELD_SECONDS:
                yield (
                    f"message {message_id} was held by {before.worker} (attempt {before.attempt}) for "
                    f"{after.at - before.at:.0f} s"
                )


@invariant
def only_the_holder_ends_an_attempt(log: Log) -> Iterator[str]:
    """The history names who held the message; the result and the effect say who ran it."""
    effects = {effect.message_id: effect for effect in log.effects}
    for end in log.ends:
        if end.status != "succeeded":
            continue
        if end.worker is None:
            yield f"message {end.message_id} succeeded while nobody held it"
        if end.told_worker is not None and (end.told_attempt, end.told_worker) != (end.attempt, end.worker):
            yield (
                f"message {end.message_id} was held by {end.worker} (attempt {end.attempt}), and was ended by "
                f"{end.told_worker} (attempt {end.told_attempt})"
            )
        effect = effects.get(end.message_id)
        if is_atomic(end.task) and effect and (effect.attempt, effect.worker) != (end.attempt, end.worker):
            yield (
                f"message {end.message_id} was held by {end.worker} (attempt {end.attempt}), and has the effect of "
                f"{effect.worker} (attempt {effect.attempt})"
            )


@invariant
def attempts_are_limited(log: Log) -> Iterator[str]:
    lost = Counter(end.message_id for end in log.ends if end.status in {"lost", "suspended"})
    for end in log.ends:
        # Who says none, as hostile producers do, gets the one that a message is enqueued for.
        most = ATTEMPTS_WITHOUT_A_NUMBER if end.max_attempts is None else max(1, end.max_attempts)
        if end.attempt > most + lost[end.message_id]:
            yield (
                f"message {end.message_id} had attempt {end.attempt} of {most}, with {lost[end.message_id]} lost or "
                "suspended"
            )


@invariant
def each_attempt_ends_once(log: Log) -> Iterator[str]:
    for (message_id, attempt, _), times in Counter((e.message_id, e.attempt, e.worker) for e in log.ends).items():
        if times > 1:
            yield f"attempt {attempt} of message {message_id} has ended {times} times"


@invariant
def a_unique_key_is_held_by_one(log: Log) -> Iterator[str]:
    holders: dict[str, int] = {}
    keys: dict[int, str] = {}
    for change in log.changes:
        held = change.held_key if change.op != "D" else None
        before = keys.pop(change.message_id, None)
        if before is not None and holders.get(before) == change.message_id:
            del holders[before]
        if held is None:
            continue
        if held in holders:
            yield f"messages {holders[held]} and {change.message_id} held the key {held!r} at the same time"
        holders[held] = change.message_id
        keys[change.message_id] = held


@invariant
def channel_limits_are_kept(log: Log) -> Iterator[str]:
    running: dict[str, set[int]] = defaultdict(set)
    channels: dict[int, str] = {}
    for change in log.changes:
        if (before := channels.pop(change.message_id, None)) is not None:
            running[before].discard(change.message_id)
        if change.op == "D" or change.worker is None or change.channel is None:
            continue
        channels[change.message_id] = change.channel
        running[change.channel].add(change.message_id)
        most = log.limits.get(change.channel)
        if most is not None and len(running[change.channel]) > most:
            yield f"{len(running[change.channel])} messages of channel {change.channel} ran at a time: it may be {most}"


@invariant
def each_slot_is_used_once(log: Log) -> Iterator[str]:
    for slot, times in Counter(c.slot for c in log.changes if c.op == "I" and c.slot is not None).items():
        if times > 1:
            yield f"the slot {slot} of a schedule was used {times} times"


@invariant
def no_slot_is_lost_when_clocks_change(log: Log) -> Iterator[str]:
    """Each minute has its slot; a time of day that does not come is made up for, one that comes twice is once."""
    slots: dict[str, list[int]] = defaultdict(list)
    for change in log.changes:
        if change.op == "I" and change.slot is not None:
            name, _, slot = change.slot.rpartition(" ")
            slots[name].append(int(slot) // 1000)
    for season, at in log.clock_changes:
        zone = zones.named(season, at)
        minutes = slots[f"{zone} each minute"]
        wanted = range(at - zones.HOUR_SECONDS, max([at, *minutes]) + 1, 60)
        if odd := [minute for minute in wanted if minutes.count(minute) != 1]:
            yield f"in {zone} {len(odd)} minutes do not have their slot once, such as {odd[:3]}"
        once = at if season == zones.SPRING else at - zones.HOUR_SECONDS + 60
        if slots[f"{zone} once"] != [once]:
            yield f"in {zone} what is due once, at {once}, was at {slots[f'{zone} once']}"


@invariant
def each_message_is_in_one_place(log: Log) -> Iterator[str]:
    """In the queue, or in the history with one final row; it goes from one to the other in one transaction."""
    final = Counter(end.message_id for end in log.ends if end.final)
    left = {(change.message_id, change.xid) for change in log.changes if change.op == "D"}
    for message_id, times in final.items():
        if times > 1:
            yield f"message {message_id} has {times} final ends"
    for message_id in log.remaining:
        if final[message_id]:
            yield f"message {message_id} has ended, and is in the queue"
    for end in log.ends:
        if end.final and (end.message_id, end.xid) not in left:
            yield f"message {end.message_id} has an end, and did not leave the queue with it"


@invariant
def running_equals_a_recount(log: Log) -> Iterator[str]:
    for each in log.recounts:
        if each.running != each.counted:
            yield f"channel {each.channel} says that {each.running} run, and {each.counted} do"


@invariant
def nothing_begins_before_it_is_due(log: Log) -> Iterator[str]:
    for message_id, changes in by_message(log).items():
        for before, after in pairwise(changes):
            if after.worker is None or before.worker is not None or after.op != "U":
                continue
            # One that is quarantined is out of reach of all who do not take it alone, and has its time back then.
            due = after.dequeue_at if (before.dequeue_at or 0) >= OUT_OF_REACH else before.dequeue_at
            if after.at * 1000 < due - DUE_MS:
                yield f"message {message_id} began {due - after.at * 1000:.0f} ms before it was due"


@invariant
def a_retry_waits_for_its_backoff(log: Log) -> Iterator[str]:
    flaky = {(e.message_id, e.xid): e.finished for e in log.ends if e.status == "retried" and is_flaky(e.error_class)}
    retried: dict[int, float] = {}
    for change in log.changes:
        if (change.message_id, change.xid) in flaky and change.worker is None:
            retried[change.message_id] = flaky[change.message_id, change.xid]
        elif change.worker is not None and change.message_id in retried:
            waited = change.at - retried.pop(change.message_id)
            if waited < BACKOFF_SECONDS - DUE_MS / 1000:
                yield (
                    f"message {change.message_id} was tried again after {waited:.3f} s, at its old place: its back-off "
                    f"is {BACKOFF_SECONDS} s"
                )


def is_flaky(error_class: str | None) -> bool:
    return error_class is not None and error_class.endswith(".Flaky")


@invariant
def a_sleeper_looks_once_more(log: Log) -> Iterator[str]:
    late = sorted(look.seconds for look in log.looks if look.seconds > LATE_LOOK_SECONDS)
    if log.looks and len(late) > MAX_LATE_LOOKS * len(log.looks):
        yield (
            f"{len(late)} of {len(log.looks)} messages that came while a worker fell asleep waited for more than "
            f"{LATE_LOOK_SECONDS} s, the last one for {late[-1]:.2f} s"
        )


@invariant
def nothing_is_left_behind(log: Log) -> Iterator[str]:
    for what in log.left_behind:
        yield f"after quiet there is still {what}"


@invariant
def no_worker_crashes_by_itself(log: Log) -> Iterator[str]:
    for error in log.crashes:
        yield f"a worker process crashed: {error}"


@invariant
def no_worker_ends_by_anything_but_its_own_job(log: Log) -> Iterator[str]:
    """Every end of a worker process that its supervisor saw is a fault's, or that of a job that asked for it."""
    tasks = {end.message_id: end.task for end in log.ends}
    left = {run.worker for run in log.runs if (tasks.get(run.message_id) or "").endswith(".leave")}
    allowed = {KILLED: log.killed, LEFT: {pid_of(worker) for worker in left}}
    for pid, code, found_no_database in log.deaths:
        if pid not in allowed.get(code, ()) and not (code == NO_DATABASE and found_no_database):
            yield f"the worker process {pid} ended with {code}, and neither a fault nor its own job was the reason"
    if log.starts_of_bystanders != 1:
        yield f"the worker that no fault aims at was started {log.starts_of_bystanders} times"


def pid_of(worker: str) -> int:
    """From a name such as host-1234-0123abcd; 0 for another."""
    found = re.search(r"-(\d+)-\w+$", worker)
    return int(found[1]) if found else 0


@invariant
def bystanders_are_not_held_up(log: Log) -> Iterator[str]:
    """Their 99th percentile beside faults, which are not aimed at them, against that of a calm."""
    waits = bystanders.waits(log)
    if why := waits.refused:
        yield f"{len(why)} jobs that no fault aims at could not be enqueued, such as: {why[0]}"
    if min(len(waits.calm), len(waits.beside_faults)) < MIN_WAITS:
        return
    calm, storm = (bystanders.percentile(values, 99) or 0.0 for values in (waits.calm, waits.beside_faults))
    if storm > MAX_TIMES * calm:
        yield (
            f"a hundredth of the jobs that no fault aims at waited for {storm:.3f} s or more, {storm / calm:.1f} times "
            f"as long as in a calm"
        )


@invariant
def dead_rows_are_bounded(log: Log) -> Iterator[str]:
    for table, dead in log.dead_rows.items():
        if dead > MAX_DEAD_ROWS:
            yield f"after quiet {table} has {dead} dead rows"


@invariant
def a_graceful_stop_ends_within_grace(log: Log) -> Iterator[str]:
    for stop in log.stops:
        if stop.code is None or stop.seconds > stop.allowed_seconds:
            yield f"the worker {stop.worker!r} took {stop.seconds} s to stop, of {stop.allowed_seconds} s"


@invariant
def everything_ends_when_faults_stop(log: Log) -> Iterator[str]:
    if log.remaining:
        yield f"{len(log.remaining)} messages did not end, such as {log.remaining[:3]}"
    if log.seconds_to_the_end > log.seconds_allowed_to_the_end:
        yield f"the queue was empty after {log.seconds_to_the_end:.1f} s, of {log.seconds_allowed_to_the_end:.1f} s"


@invariant
def recovery_is_quick(log: Log) -> Iterator[str]:
    for seconds in log.kill_recovery_seconds:
        if seconds > log.lock_seconds + 1:
            yield f"after a worker was killed its job ran again after {seconds:.2f} s: the lock is {log.lock_seconds} s"
    for seconds in log.restart_recovery_seconds:
        if seconds > RESTART_SECONDS:
            yield f"after a restart of PostgreSQL a job ended after {seconds:.2f} s"


INVARIANTS += durable_invariants.INVARIANTS


def by_message(log: Log) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = defaultdict(list)
    for change in log.changes:
        found[change.message_id].append(change)
    return found


def violations(log: Log) -> dict[str, list[str]]:
    return {function.__name__: list(function(log)) for function in INVARIANTS}
