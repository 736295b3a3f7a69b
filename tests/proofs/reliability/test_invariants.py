"""Each invariant finds what it is there for, in a log that was forged, and nothing in an honest one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.proofs.reliability import bystanders, durable, invariants, zones
from tests.proofs.reliability.log import (
    Change,
    Death,
    Effect,
    End,
    Log,
    Look,
    Recount,
    Run,
    Spell,
    Step,
    StepEffect,
    Stop,
    deaths,
)  # fmt: skip

PAY, NOTE, FLAKY, LEAVE, GROWN = (
    f"tests.proofs.reliability.tasks.{name}" for name in ("pay", "note", "flaky", "leave", "grown")
)


def honest() -> Log:
    """An atomic job, one that was lost and one that was retried, and one that is committed and waits in a channel."""
    return Log(
        enqueued=[(101, 1), (102, 2), (103, 3)],
        acknowledged={101, 102},
        rolled_back={666},
        changes=[
            Change(1, 10, 1.0, "I", 1, 0, token=101, dequeue_at=1000, held_key="k"),
            Change(2, 11, 1.0, "I", 2, 0, token=102, dequeue_at=1000, channel="c", slot="s 1"),
            Change(3, 12, 1.0, "I", 3, 0, token=103, dequeue_at=1000),
            Change(4, 13, 1.1, "U", 1, 1, "A", 1000, held_key="k"),
            Change(5, 14, 1.2, "D", 1, 1, "A", 1000, held_key="k"),
            Change(6, 15, 1.2, "U", 2, 1, "A", 1000, channel="c"),
            Change(7, 16, 3.2, "U", 2, 1, None, 1000, channel="c"),
            Change(8, 16, 3.2, "U", 2, 2, "B", 1000, channel="c"),
            Change(9, 17, 3.3, "D", 2, 2, "B", 1000, channel="c"),
            Change(10, 18, 3.3, "U", 3, 1, "B", 1000),
            Change(11, 19, 3.4, "U", 3, 1, None, 3800),
            Change(12, 20, 3.8, "U", 3, 2, "A", 3800),
            Change(13, 21, 3.9, "D", 3, 2, "A", 3800),
        ],
        ends=[
            End(1, 1, "succeeded", True, 14, 30, "A", PAY, None, 1, "A"),
            End(2, 1, "lost", False, 16, 1, "A", NOTE),
            End(2, 2, "succeeded", True, 17, 1, "B", NOTE, None, 2, "B"),
            End(3, 1, "retried", False, 19, 2, "B", FLAKY, f"{FLAKY[:-5]}Flaky", finished=3.4),
            End(3, 2, "succeeded", True, 21, 2, "A", FLAKY, None, 2, "A"),
        ],
        effects=[Effect(1, 1, "A", 101), Effect(2, 1, "A", 102), Effect(2, 2, "B", 102)],
        runs=[Run(101, 1, 1, "A"), Run(102, 2, 1, "A"), Run(102, 2, 2, "B"), Run(103, 3, 1, "B"), Run(103, 3, 2, "A")],
        limits={"c": 1},
        recounts=[Recount("c", 1, 1)],
        stops=[Stop("w", 1.0, 0, 5.0)],
        looks=[Look(0.1), Look(0.2), Look(0.1), Look(0.1)],
        dead_rows={"pgqueue_message": 100},
        seconds_to_the_end=1.0,
        seconds_allowed_to_the_end=60.0,
        kill_recovery_seconds=[2.5],
        restart_recovery_seconds=[1.0],
        lock_seconds=2.0,
    )


def forged(**changes: Any) -> Log:
    return dataclasses.replace(honest(), **changes)


def with_changes(*changes: Change) -> Log:
    """These instead of those with the same number, and the others."""
    by_number = {change.seq: change for change in (*honest().changes, *changes)}
    return forged(changes=[by_number[seq] for seq in sorted(by_number)])


def with_end(end: End) -> Log:
    others = [each for each in honest().ends if (each.message_id, each.attempt) != (end.message_id, end.attempt)]
    return forged(ends=[*others, end])


def over_a_change(season: str, *, minutes: range = range(62), once: int) -> Log:
    """A change of clocks an hour after 1970 began: slots of a schedule by the minute, and when another was due."""
    zone = zones.named(season, 3600)
    slots = [f"{zone} each minute {60_000 * minute}" for minute in minutes] + [f"{zone} once {60_000 * once}"]
    changes = [Change(seq, 50, 3600.0, "I", seq, 0, slot=slot) for seq, slot in enumerate(slots, 100)]
    return forged(changes=[*honest().changes, *changes], clock_changes=[(season, 3600)])


def with_bystanders(*, calm: float, storm: float, **changes: Any) -> Log:
    """A thousand in a calm, and a thousand beside a fault, of which each hundredth waits for so long."""
    tokens = range(1001, 3001)
    asked = [(token, token - 1000.0) for token in tokens]
    waits = {token: (calm if token <= 2000 else storm) if token % 50 == 0 else 0.01 for token in tokens}
    runs = [Run(token, 1, 1, "A", at + waits[token]) for token, at in asked]
    spells = [Spell("row locks", 1500.0, 2000.0, False)]
    defaults = {"calms": [(0.0, 1001.0)], "spells": spells}
    return forged(bystanders=asked, runs=[*honest().runs, *runs], **(defaults | changes))


def with_deaths(*deaths: Death, **changes: Any) -> Log:
    """Beside one of each kind that is allowed."""
    runs = [Run(104, 4, 1, "host-33-0123abcd"), Run(101, 1, 1, "A")]
    end = End(4, 1, "lost", False, 14, 30, "A", LEAVE)
    allowed = [Death(11, -9), Death(22, 70, found_no_database=True), Death(33, 3)]
    there = {"ends": [*honest().ends, end], "runs": runs, "killed": {11}}
    return forged(deaths=[*allowed, *deaths], **there, **changes)


TOKEN = next(n for n in range(1000) if set(durable.kinds_of(n)) >= {"atomic", "plain", "sleep", "event", "child"})
FOLLOW = "tests.proofs.reliability.durable.follow"
AT = {kind: durable.kinds_of(TOKEN).index(kind) for kind in ("atomic", "plain", "sleep", "event", "child")}
ATOMIC_STEP, PLAIN_STEP = f"atomic-{AT['atomic']}", f"plain-{AT['plain']}"


def durable_log(**changes: Any) -> Log:
    """A durable job whose first attempt is suspended, and whose second one takes all of its steps."""
    kinds = list(enumerate(durable.kinds_of(TOKEN)))
    steps = [Step(n, 40.0, 9, 2, kind, "done", f"{kind}-{n}") for n, kind in kinds if kind not in ("sleep", "event")]
    sleep = Step(1000, 30.0, 9, 1, "sleep", "waiting", f"sleep-{AT['sleep']}", 35_000)
    waits = Step(1001, 30.0, 9, 1, "event", "waiting", durable.event_of(TOKEN, AT["event"]))
    woken = Step(1005, 40.0, 9, 2, "step", "done", f"woken-{AT['sleep']}")
    steps = [sleep, waits, woken, *(step._replace(seq=1100 + step.seq) for step in steps)]
    effects = [
        StepEffect(1100 + n, 9, 2, f"{kind}-{n}") for n, kind in kinds if kind in (*durable.ATOMIC, *durable.PLAIN)
    ]
    children = list(range(50, 50 + sum(durable.NUMBER_OF_CHILDREN.get(kind, 0) for _, kind in kinds)))
    there = [
        Change(990, 60, 1.0, "I", 9, 0, token=TOKEN),
        Change(991, 61, 30.0, "U", 9, 1, "A"),
        Change(1002, 62, 30.0, "U", 9, 1, None, 35_000),
        Change(1003, 63, 36.0, "U", 9, 2, "B", 35_000),
        *(Change(1200 + child, 70, 38.0, "I", child, 0) for child in children),
        *(Change(1300 + child, 200 + child, 39.0, "D", child, 1, "A") for child in children),
        Change(2000, 64, 40.0, "D", 9, 2, "B", 35_000),
    ]
    ends = [End(9, 1, "suspended", False, 62, 31, "A", FOLLOW), End(9, 2, "succeeded", True, 64, 31, "B", FOLLOW)]
    ends += [End(child, 1, "succeeded", True, 200 + child, 30, "A", f"{FOLLOW}_child") for child in children]
    runs = [Run(TOKEN, 9, 1, "A"), Run(TOKEN, 9, 2, "B"), *(Run(TOKEN, child, 1, "A") for child in children)]
    log = forged(
        changes=[*honest().changes, *there],
        ends=[*honest().ends, *ends],
        runs=[*honest().runs, *runs],
        steps=steps,
        step_effects=effects,
        children=[(9, child) for child in children],
        emitted=[durable.event_of(TOKEN, AT["event"])],
    )
    return dataclasses.replace(log, **{name: change(getattr(log, name)) for name, change in changes.items()})


def test_a_durable_job_violates_nothing() -> None:
    assert {name: found for name, found in invariants.violations(durable_log()).items() if found} == {}


FORGERIES: dict[str, list[tuple[Log, str]]] = {
    "no_committed_enqueue_is_lost": [
        (forged(acknowledged={101, 104}), "token 104 was acknowledged"),
        (forged(enqueued=[(101, 1), (104, 4)]), "message 4 of token 104 was committed"),
        (forged(ends=honest().ends[1:]), "message 1 was in the queue, and is gone"),
        (forged(changes=honest().changes[1:]), "message 1 has ended, and never was in the queue"),
    ],
    "nothing_that_was_rolled_back_runs": [
        (forged(rolled_back={101}), "token 101 was rolled back, and is in the queue"),
        (forged(runs=[Run(666, 6, 1, "A")]), "token 666 was rolled back, and ran"),
        (forged(runs=[Run(105, 5, 1, "A")]), "message 5 ran, and was never committed"),
    ],
    "atomic_effects_happen_exactly_once": [
        (forged(effects=[Effect(1, 1, "A"), Effect(1, 2, "B")]), "its effect is there 2 times instead of 1"),
        (forged(effects=[]), "its effect is there 0 times instead of 1"),
        (with_end(End(1, 1, "failed", True, 14, 30, "A", PAY)), "its effect is there 1 times instead of 0"),
    ],
    "other_effects_happen_at_least_once": [
        (forged(runs=honest().runs[:1]), "message 2 succeeded, and never ran"),
        (forged(effects=[Effect(1, 1, "A")]), "message 2 succeeded without its effect"),
    ],
    "innocent_jobs_do_not_fail": [
        (with_end(End(2, 2, "failed", True, 17, 1, "B", NOTE, "AttemptLost")), "message 2 (note) failed with"),
    ],
    "locked_rows_cost_no_other_job_its_lock": [(forged(innocents=[1, 2]), "message 2 was lost: its worker renewed")],
    "no_job_ends_because_a_worker_did_not_know_it": [
        (
            with_end(End(2, 2, "failed", True, 17, 1, "B", NOTE, "django_pgqueue.exceptions.UnknownTask")),
            "message 2 (tests.proofs.reliability.tasks.note) failed because a worker did not know it",
        ),
    ],
    "no_attempt_is_used_up_by_a_rollout": [
        (with_end(End(2, 2, "retried", False, 17, 1, "B", GROWN, "TypeError")), "attempt 2 of message 2 (grown)"),
        (with_end(End(2, 2, "failed", True, 17, 1, "B", GROWN, "e.UnknownTask")), "was used up by a UnknownTask"),
    ],
    "only_one_attempt_holds_a_message": [
        (with_changes(Change(7, 16, 3.2, "U", 2, 2, "C", 1000)), "taken by C while A held it"),
        (with_changes(Change(8, 16, 3.2, "U", 2, 3, "B", 1000)), "attempt 3 came after 1"),
    ],
    "no_attempt_holds_a_message_for_ever": [
        (with_changes(Change(13, 21, 130.9, "D", 3, 2, "A", 3800)), "message 3 was held by A (attempt 2) for 127 s"),
    ],
    "only_the_holder_ends_an_attempt": [
        (with_end(End(1, 1, "succeeded", True, 14, 30, None, PAY)), "while nobody held it"),
        (with_end(End(2, 2, "succeeded", True, 17, 1, "B", NOTE, None, 1, "A")), "was ended by A (attempt 1)"),
        (forged(effects=[Effect(1, 1, "Z")]), "has the effect of Z"),
    ],
    "attempts_are_limited": [
        (with_end(End(2, 3, "succeeded", True, 17, 1, "B", NOTE)), "attempt 3 of 1, with 1 lost or suspended"),
        (with_end(End(1, 6, "succeeded", True, 14, None, "A", PAY)), "attempt 6 of 5, with 0 lost or suspended"),
    ],
    "each_attempt_ends_once": [(forged(ends=[*honest().ends, honest().ends[0]]), "has ended 2 times")],
    "a_unique_key_is_held_by_one": [
        (with_changes(Change(3, 12, 1.0, "I", 3, 0, held_key="k")), "messages 1 and 3 held the key 'k'")
    ],
    "channel_limits_are_kept": [
        (with_changes(Change(10, 18, 1.2, "U", 3, 1, "B", channel="c"), Change(9, 9, 1.0, "U", 2, 2, "B", channel="c")),
         "2 messages of channel c ran at a time"),
    ],
    "each_slot_is_used_once": [
        (with_changes(Change(3, 12, 1.0, "I", 3, 0, slot="s 1")), "slot s 1 of a schedule was used 2 times")
    ],
    "no_slot_is_lost_when_clocks_change": [
        (over_a_change("autumn", minutes=range(60), once=1), "minutes do not have their slot once"),
        (over_a_change("spring", minutes=range(0, 62, 61), once=60), "minutes do not have their slot once"),
        (over_a_change("autumn", once=61), "what is due once, at 60, was at [3660]"),
        (over_a_change("spring", once=61), "what is due once, at 3600, was at [3660]"),
    ],
    "each_message_is_in_one_place": [
        (forged(ends=[*honest().ends, End(1, 2, "failed", True, 14)]), "message 1 has 2 final ends"),
        (forged(remaining=[1]), "message 1 has ended, and is in the queue"),
        (with_end(End(1, 1, "succeeded", True, 99, 30, "A", PAY)), "did not leave the queue with it"),
    ],
    "running_equals_a_recount": [(forged(recounts=[Recount("c", 2, 1)]), "says that 2 run, and 1 do")],
    "nothing_begins_before_it_is_due": [
        (with_changes(Change(12, 20, 3.7, "U", 3, 2, "A", 3800)), "began 100 ms before it was due")
    ],
    "a_retry_waits_for_its_backoff": [
        (with_changes(Change(12, 20, 3.5, "U", 3, 2, "A", 3400)), "tried again after 0.100 s")
    ],
    "a_sleeper_looks_once_more": [(forged(looks=[Look(0.1), Look(1.0), Look(1.1)]), "2 of 3 messages")],
    "nothing_is_left_behind": [(forged(left_behind=["a lock on pgqueue_message"]), "still a lock on pgqueue_message")],
    "no_worker_crashes_by_itself": [(forged(crashes=["KeyError: 1"]), "a worker process crashed: KeyError: 1")],
    "no_worker_ends_by_anything_but_its_own_job": [
        (with_deaths(Death(44, -9)), "the worker process 44 ended with -9"),
        (with_deaths(Death(11, 3)), "the worker process 11 ended with 3"),
        (with_deaths(Death(11, -11)), "the worker process 11 ended with -11"),
        (with_deaths(Death(11, 3, found_no_database=True)), "the worker process 11 ended with 3"),
        (with_deaths(Death(44, 70)), "the worker process 44 ended with 70"),
        (with_deaths(starts_of_bystanders=2), "the worker that no fault aims at was started 2 times"),
    ],
    "bystanders_are_not_held_up": [
        (with_bystanders(calm=0.1, storm=0.4), "waited for 0.400 s or more, 4.0 times as long as in a calm"),
        (with_bystanders(calm=0.1, storm=0.1, refused=[(1700.0, 1700.1, "why")]), "1 jobs that no fault aims at"),
    ],
    "dead_rows_are_bounded": [(forged(dead_rows={"pgqueue_message": 90_000}), "has 90000 dead rows")],
    "a_graceful_stop_ends_within_grace": [
        (forged(stops=[Stop("w", 6.0, 0, 5.0)]), "took 6.0 s to stop, of 5.0 s"),
        (forged(stops=[Stop("w", 4.0, None, 5.0)]), "took 4.0 s to stop"),
    ],
    "everything_ends_when_faults_stop": [
        (forged(remaining=[3]), "1 messages did not end"),
        (forged(seconds_to_the_end=61.0), "empty after 61.0 s"),
    ],
    "recovery_is_quick": [
        (forged(kill_recovery_seconds=[3.1]), "ran again after 3.10 s"),
        (forged(restart_recovery_seconds=[5.1]), "a job ended after 5.10 s"),
    ],
    "each_atomic_step_happens_once": [
        (durable_log(step_effects=lambda effects: [*effects, StepEffect(1150, 9, 2, ATOMIC_STEP)]),
         f"the atomic step {ATOMIC_STEP} of message 9 has 2 effects and 1 records"),
        (durable_log(steps=lambda steps: [step for step in steps if step.name != ATOMIC_STEP]),
         "has 1 effects and 0 records"),
    ],
    "each_plain_step_happens_at_least_once": [
        (durable_log(step_effects=lambda effects: [effect for effect in effects if effect.name != PLAIN_STEP]),
         f"message 9 succeeded without the step {PLAIN_STEP}"),
    ],
    "only_the_holder_records_a_step": [
        (durable_log(steps=lambda steps: [*steps, Step(1150, 40.0, 9, 1, "step", "done", "late")]),
         "attempt 1 of message 9 recorded late, and did not hold it"),
    ],
    "a_late_attempt_takes_no_further_step": [
        (durable_log(step_effects=lambda effects: [
            *effects, StepEffect(2001, 9, 1, "plain-0"), StepEffect(2002, 9, 1, "plain-1")]),
         "attempt 1 of message 9 took ['plain-0', 'plain-1'] after a later one had ended"),
    ],
    "no_sleep_is_cut_short": [
        (durable_log(steps=lambda steps: [step._replace(at=34.0) for step in steps]),
         "message 9 woke up 1000 ms too early"),
    ],
    "no_wake_up_is_lost": [
        (durable_log(remaining=lambda _: [9]), "which was emitted"),
        (durable_log(remaining=lambda _: [9], emitted=lambda _: []), "message 9 still sleeps"),
    ],
    "no_child_is_orphaned_or_doubled": [
        (durable_log(children=lambda children: children[1:]), "children instead of"),
        (durable_log(children=lambda children: [*children, (9, 3)]), "children instead of"),
        (durable_log(children=lambda children: [*children[1:], (9, 77)]), "one of them never was in the queue"),
        (durable_log(changes=lambda changes: [
            change._replace(seq=3000) if change.message_id == 50 and change.op == "D" else change
            for change in changes]),
         "message 9 ended before its child 50"),
    ],
}  # fmt: skip


def test_a_valid_log_violates_no_invariant() -> None:
    assert {name: found for name, found in invariants.violations(honest()).items() if found} == {}


def test_a_wait_while_no_worker_could_run_is_counted_apart() -> None:
    spells = [Spell("PostgreSQL away", 1000.0, 2000.0, True)]
    log = with_bystanders(calm=0.1, storm=0.4, spells=spells, refused=[(1700.0, 1700.1, "away")])
    assert list(invariants.bystanders_are_not_held_up(log)) == []
    assert len(bystanders.waits(log).while_nobody_could_work) == 1000


def test_the_time_after_a_fault_that_stops_all_workers_counts_to_it() -> None:
    spans = bystanders.Spans([(10.0, 20.0), (15.0, 30.0), (40.0, 50.0)])
    assert [spans.meet(at, at + 1) for at in (8, 9, 29, 31, 38, 39, 51)] == [
        False, True, True, False, False, True, False,
    ]  # fmt: skip


def test_worker_processes_that_faults_or_their_jobs_have_ended_are_no_violation() -> None:
    assert list(invariants.no_worker_ends_by_anything_but_its_own_job(with_deaths())) == []


def test_a_process_without_a_database_is_not_confused_with_an_earlier_one_of_its_pid() -> None:
    turned_away, crashed = "worker pid=22 cannot start: refused", "crashed pid=22 code=70 lived_seconds=1"
    text = f"{crashed}\n{turned_away}\ncrashed pid=33 code=-9\n{crashed}\n{crashed}"
    assert [death.found_no_database for death in deaths(text)] == [False, False, True, False]


def test_a_percentile_is_a_measured_wait() -> None:
    assert [bystanders.percentile([float(n) for n in range(1, 201)], percent) for percent in (50, 99, 100)] == [
        100.0, 198.0, 200.0,
    ]  # fmt: skip
    assert bystanders.percentile([], 99) is None


@pytest.mark.parametrize(("season", "once"), [("spring", 60), ("autumn", 1)])
def test_a_schedule_over_a_clock_change_violates_nothing(season: str, once: int) -> None:
    assert list(invariants.no_slot_is_lost_when_clocks_change(over_a_change(season, once=once))) == []


def test_each_invariant_has_its_forgeries() -> None:
    assert list(FORGERIES) == [function.__name__ for function in invariants.INVARIANTS]


@pytest.mark.parametrize(
    ("name", "log", "sentence"),
    [(name, log, sentence) for name, forgeries in FORGERIES.items() for log, sentence in forgeries],
)
def test_a_forged_log_is_detected(name: str, log: Log, sentence: str) -> None:
    [function] = [function for function in invariants.INVARIANTS if function.__name__ == name]
    found = list(function(log))
    assert any(sentence in each for each in found), found
