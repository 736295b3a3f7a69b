"""What a storm did and what was found: for people, and as JSON."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability import bystanders, durable_invariants
from tests.proofs.reliability.invariants import violations

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proofs.reliability.log import Log

SHOWN = 5
RESTARTS = (
    "PostgreSQL -m immediate, restarted", "PostgreSQL -m fast, restarted", "PostgreSQL away", "WAL disk full",
    "standby promoted", "SIGKILL of a server process",
)  # fmt: skip


def report(log: Log, facts: dict[str, Any]) -> dict[str, Any]:
    found = violations(log)
    done = [each for each in facts["faults"] if "skipped" not in each]
    return facts | {
        "jobs": sum(change.op == "I" and change.token is not None for change in log.changes),
        "messages of others": sum(change.op == "I" and change.token is None for change in log.changes),
        "changes": len(log.changes),
        "runs": len(log.runs),
        "ends": dict(Counter(end.status for end in log.ends)),
        "rolled back": len(log.rolled_back),
        "faults done": len(done),
        "kinds of faults": len({each["fault"] for each in done}),
        "fault kinds": dict(Counter(each["fault"] for each in done)),
        "skipped": facts["environments"]
        | {each["fault"]: each["skipped"] for each in facts["faults"] if "skipped" in each},
        "durable": durable_invariants.figures(log),
        "bystanders": waits(log),
        "worker processes that ended": dict(Counter(str(death.code) for death in log.deaths)),
        "broken faults": [each for each in facts["faults"] if "broken" in each],
        "recovery after a worker kill": rounded(log.kill_recovery_seconds),
        "recovery after a restart": rounded(log.restart_recovery_seconds),
        "work went on after a restart": rounded(went_on(log, facts["faults"])),
        "slowest stop": max((stop.seconds for stop in log.stops), default=None),
        "stops": len(log.stops),
        "recounts": len(log.recounts),
        "seconds to the end": round(log.seconds_to_the_end, 1),
        "dead rows": log.dead_rows,
        "invariants": {name: len(sentences) for name, sentences in found.items()},
        "violations": {name: sentences[:50] for name, sentences in found.items() if sentences},
    }


def went_on(log: Log, faults: list[dict[str, Any]]) -> list[float]:
    """How long after PostgreSQL was back the next job ended, for each time that it had been away."""
    ended = [change.at for change in log.changes if change.op == "D"]
    back = [each["over"] for each in faults if each["fault"] in RESTARTS and "broken" not in each]
    return sorted(next((at - over for at in ended if at > over), 0.0) for over in back)


def waits(log: Log) -> dict[str, Any]:
    found = bystanders.waits(log)
    calm, storm = bystanders.percentile(found.calm, 99), bystanders.percentile(found.beside_faults, 99)
    return {
        "calm": summary(found.calm),
        "beside faults": summary(found.beside_faults),
        "while nobody could work": summary(found.while_nobody_could_work),
        "times as long": round(storm / calm, 2) if calm and storm else None,
        "refused": len(found.refused),
        "refused while nobody could work": found.refused_while_nobody_could_work,
        "worst": found.worst,
    }


def summary(seconds: list[float]) -> dict[str, Any]:
    percents = {f"p{percent}": bystanders.percentile(seconds, percent) for percent in (50, 90, 99)}
    found = {name: round(value, 4) for name, value in percents.items() if value is not None}
    return {"jobs": len(seconds), **found, "max": round(max(seconds, default=0.0), 3)}


def rounded(seconds: list[float]) -> list[float]:
    return [round(each, 2) for each in seconds]


def write(path: Path, whole: dict[str, Any]) -> None:
    path.write_text(json.dumps(whole, indent=1) + "\n")


def show(whole: dict[str, Any]) -> None:
    print(f"seed {whole['seed']}, {whole['server']}, {whole['seconds']:.0f} s", end="")
    print(f", sabotage: {whole['sabotage']}" if whole["sabotage"] else "")
    print(f"the old version: {whole['old version']}")
    print(
        f"{whole['jobs']} jobs, {whole['messages of others']} messages of others, {whole['runs']} attempts begun, "
        f"ends: {whole['ends']}"
    )
    print(f"durable: {whole['durable']}")
    print(f"rollouts: {whole['rollouts']}")
    print(f"attempts by worker: {whole['begun by']}")
    print(f"{whole['rolled back']} enqueues rolled back, {whole['enqueues without an answer']} without an answer")
    print(f"{whole['faults done']} faults of {whole['kinds of faults']} kinds:")
    for name, count in sorted(whole["fault kinds"].items()):
        print(f"  {count:4} {name}")
    for name, reason in whole["skipped"].items():
        print(f"  skipped: {name}: {reason}")
    for each in whole["broken faults"]:
        print(f"  BROKEN: {each['fault']}: {each['broken']}")
    print(f"recovery after a worker kill: {whole['recovery after a worker kill']} s")
    print(f"recovery after a restart of PostgreSQL: {whole['recovery after a restart']} s")
    if went := whole["work went on after a restart"]:
        print(f"the next job ended {went[0]} to {went[-1]} s after PostgreSQL was back, {len(went)} times")
    if whole["second look seconds"]:
        print(f"picked up while falling asleep: median {statistics.median(whole['second look seconds']):.3f} s")
    for name in ("calm", "beside faults", "while nobody could work"):
        print(f"waits of bystanders, {name}: {whole['bystanders'][name]}")
    print(f"p99 beside faults is {whole['bystanders']['times as long']} times that of the calm")
    for seconds, names in whole["bystanders"]["worst"][:SHOWN]:
        print(f"  {seconds:.3f} s: {', '.join(names) or 'no fault'}")
    print(f"worker processes that ended, by exit code: {whole['worker processes that ended']}")
    print(f"slowest of {whole['stops']} stops: {whole['slowest stop']} s")
    print(f"the queue was empty {whole['seconds to the end']} s after the last fault")
    show_found({name: whole["violations"].get(name, []) for name in whole["invariants"]}, whole["invariants"])


def show_invariants(log: Log) -> bool:
    """Of a log alone.  True: some are violated."""
    found = violations(log)
    show_found(found, {name: len(sentences) for name, sentences in found.items()})
    return any(found.values())


def show_found(found: dict[str, list[str]], counts: dict[str, int]) -> None:
    for name, count in counts.items():
        print(f"  {'ok      ' if not count else 'VIOLATED'} {name.replace('_', ' ')}{f' ({count})' if count else ''}")
    for sentences in found.values():
        for sentence in sentences[:SHOWN]:
            print(f"    {sentence}")
