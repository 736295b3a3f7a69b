"""What must hold of the durable jobs of a log.  A function answers its violations, as sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.proofs.reliability.durable import ATOMIC, NUMBER_OF_CHILDREN, PLAIN, is_durable, kinds_of
from tests.proofs.reliability.log import Change, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proofs.reliability.log import Log

    Invariant = Callable[[Log], Iterator[str]]


def each_atomic_step_happens_once(log: Log) -> Iterator[str]:
    """Its effect and its record commit together: one of each if the job succeeded, and never more."""
    effects = Counter((effect.message_id, effect.name) for effect in log.step_effects)
    records = Counter((step.message_id, step.name) for step in log.steps if step.status == "done")
    for message_id, token, has_succeeded in durable_jobs(log):
        for number, kind in enumerate(kinds_of(token)):
            if kind not in ATOMIC:
                continue
            found = effects[message_id, f"{kind}-{number}"], records[message_id, f"{kind}-{number}"]
            if found != (1, 1) and (has_succeeded or found != (0, 0)):
                yield (
                    f"the atomic step {kind}-{number} of message {message_id} has {found[0]} effects and {found[1]} "
                    "records"
                )


def each_plain_step_happens_at_least_once(log: Log) -> Iterator[str]:
    effects = {(effect.message_id, effect.name) for effect in log.step_effects}
    for message_id, token, has_succeeded in durable_jobs(log):
        for number, kind in enumerate(kinds_of(token)):
            if kind in PLAIN and has_succeeded and (message_id, f"{kind}-{number}") not in effects:
                yield f"message {message_id} succeeded without the step {kind}-{number}"


def only_the_holder_records_a_step(log: Log) -> Iterator[str]:
    """In the order of the row locks: each record falls between the claim of its attempt and its end."""
    records = [step for step in log.steps if step.status != "waiting"]
    holding: dict[int, int | None] = {}
    entries: list[Change | Step] = [*log.changes, *records]
    for entry in sorted(entries, key=lambda entry: entry.seq):
        if isinstance(entry, Change):
            is_held = entry.op != "D" and entry.worker is not None
            holding[entry.message_id] = entry.attempt if is_held else None
        elif holding.get(entry.message_id) != entry.attempt:
            yield f"attempt {entry.attempt} of message {entry.message_id} recorded {entry.name}, and did not hold it"


def a_late_attempt_takes_no_further_step(log: Log) -> Iterator[str]:
    """Only the plain step that is in flight when an attempt is lost may still happen, and no other after it."""
    ended: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for change in log.changes:
        if change.worker is None or change.op == "D":
            ended[change.message_id].append((change.attempt, change.seq))
    late: dict[tuple[int, int], set[str]] = defaultdict(set)
    for effect in log.step_effects:
        if any(attempt > effect.attempt and seq < effect.seq for attempt, seq in ended[effect.message_id]):
            late[effect.message_id, effect.attempt].add(effect.name)
    for (message_id, attempt), names in late.items():
        if len(names) > 1:
            yield f"attempt {attempt} of message {message_id} took {sorted(names)} after a later one had ended"


def no_sleep_is_cut_short(log: Log) -> Iterator[str]:
    until = {
        (step.message_id, step.name.rpartition("-")[2]): step.until
        for step in log.steps
        if step.kind == "sleep" and step.status == "waiting"
    }
    for step in log.steps:
        name, _, number = step.name.rpartition("-")
        due = until.get((step.message_id, number))
        if name == "woken" and step.status == "done" and due is not None and step.at * 1000 < due - 5:
            yield f"message {step.message_id} woke up {due - step.at * 1000:.0f} ms too early"


def no_wake_up_is_lost(log: Log) -> Iterator[str]:
    """When all is over, nobody waits for what has been."""
    emitted = set(log.emitted)
    remaining = set(log.remaining)
    done = {(step.message_id, step.name) for step in log.steps if step.status == "done"}
    for step in log.steps:
        if step.status != "waiting" or step.message_id not in remaining or (step.message_id, step.name) in done:
            continue
        if step.kind == "event" and step.name in emitted:
            yield f"message {step.message_id} waits for {step.name}, which was emitted"
        elif step.kind == "sleep":
            yield f"message {step.message_id} still sleeps {step.name}"


def no_child_is_orphaned_or_doubled(log: Log) -> Iterator[str]:
    """As many as the job has steps for it, each of which was in the queue, and had left it before its parent."""
    inserted = {change.message_id for change in log.changes if change.op == "I"}
    left = {change.message_id: change.seq for change in log.changes if change.op == "D"}
    children: dict[int, list[int]] = defaultdict(list)
    for parent_id, child_id in log.children:
        children[parent_id].append(child_id)
        if parent_id not in inserted or child_id not in inserted:
            yield f"message {child_id} is a child of message {parent_id}, and one of them never was in the queue"
    for message_id, token, has_succeeded in durable_jobs(log):
        most = sum(NUMBER_OF_CHILDREN.get(kind, 0) for kind in kinds_of(token))
        count = len(children[message_id])
        if count > most or (has_succeeded and count != most):
            yield f"message {message_id} has {count} children instead of {most}"
        if not has_succeeded:
            continue
        for child_id in children[message_id]:
            if child_id not in left or left[child_id] > left[message_id]:
                yield f"message {message_id} ended before its child {child_id}"


INVARIANTS: list[Invariant] = [
    each_atomic_step_happens_once,
    each_plain_step_happens_at_least_once,
    only_the_holder_records_a_step,
    a_late_attempt_takes_no_further_step,
    no_sleep_is_cut_short,
    no_wake_up_is_lost,
    no_child_is_orphaned_or_doubled,
]


def durable_jobs(log: Log) -> Iterator[tuple[int, int, bool]]:
    """The id and the token of each that has ended, and whether it succeeded."""
    tokens = {change.message_id: change.token for change in log.changes if change.op == "I"}
    for end in log.ends:
        token = tokens.get(end.message_id)
        if end.final and is_durable(end.task) and token is not None:
            yield end.message_id, token, end.status == "succeeded"


def figures(log: Log) -> dict[str, int]:
    """For the report."""
    jobs = list(durable_jobs(log))
    return {
        "jobs": len(jobs),
        "succeeded": sum(has_succeeded for _, _, has_succeeded in jobs),
        "steps": sum(step.status == "done" for step in log.steps),
        "waits": sum(step.status == "waiting" for step in log.steps),
        "children": len(log.children),
        "effects": len(log.step_effects),
    }
