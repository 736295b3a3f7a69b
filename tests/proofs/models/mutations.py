"""Ways to break the SQL, each of which the comparison with the reference has to find."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.databases import sql_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sessions import Session

FENCE = "and m.attempt = p_attempts[array_position(p_ids, m.id)]"
UNIQUE = """
    drop index pgqueue_message_unique_key_ix;
    create unique index pgqueue_message_unique_key_ix on pgqueue_message (unique_key) where unique_key is not null
"""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text of a file of sql/, and what stands there instead: in its first place, or in all."""

    file: str
    old: str
    new: str
    everywhere: bool = False

    def text(self) -> str:
        original = sql_files()[self.file]
        assert self.old in original, f"{self.file} has no {self.old!r} any more: choose another way to break it"
        return original.replace(self.old, self.new, -1 if self.everywhere else 1)


MUTATIONS = {
    "complete without the fence": Mutation("pgqueue_message_complete", "and m.attempt = g.attempt", ""),
    "complete for any worker": Mutation("pgqueue_message_complete", "and m.worker = p_worker", ""),
    "heartbeat without the fence": Mutation("pgqueue_message_heartbeat", FENCE, ""),
    "release burns an attempt": Mutation("pgqueue_message_release", "attempt = greatest(m.attempt, 1) - 1,", ""),
    "release does not give the key back": Mutation(
        "pgqueue_message_release", "set unique_key = v_message.unique_key", "set unique_key = null"
    ),
    "priorities upside down": Mutation(
        "pgqueue_message_dequeue",
        "order by m.priority desc, m.queue, m.dequeue_at", "order by m.priority, m.queue, m.dequeue_at", everywhere=True
    ),
    "the newest first": Mutation(
        "pgqueue_message_dequeue",
        "order by m.dequeue_at, m.id\n                        limit least(v_share, v_left)",
        "order by m.dequeue_at, m.id desc\n                        limit least(v_share, v_left)",
    ),
    "what is due does not come into line": Mutation(
        "pgqueue_message_dequeue", "if v_scheduled and v_left > 0", "if false", everywhere=True
    ),
    "what is released stays out of line": Mutation("pgqueue_message_look", "in_line = true", "in_line = false"),
    "paused queues are served": Mutation(
        "pgqueue_message_dequeue", "q.paused_at is not null", "false", everywhere=True
    ),
    "a dequeue waits for row locks": Mutation(
        "pgqueue_message_dequeue", "for no key update skip locked", "for no key update", everywhere=True
    ),
    "a floor leaves its own place out": Mutation(
        "pgqueue_message_dequeue", "(m.dequeue_at, m.id) >=", "(m.dequeue_at, m.id) >"
    ),
    "a channel runs one too many": Mutation(
        "pgqueue_lane_dequeue", "d.max_concurrency - d.running as room", "d.max_concurrency - d.running + 1 as room"
    ),
    "the release interval is not kept": Mutation("pgqueue_lane_dequeue", "or v_lane.release_at > v_now", ""),
    "lanes that come to nothing hide others": Mutation("pgqueue_lane_dequeue", "and (v_turns > 0 or not v_passed)", ""),
    "a halted lane is forgotten": Mutation(
        "pgqueue_lane_arm", "where l.channel = any (v_names) and l.parked", "where false"
    ),
    "an arrival is not worked in": Mutation(
        "pgqueue_lane_arm", "and greatest(s.dequeue_at, v_now) < coalesce(l.next_at, 9223372036854775807)",
        "and s.dequeue_at <= v_now"
    ),
    "a delete gives no place back": Mutation(
        "pgqueue_message_lane", "and (tg_op = 'DELETE' or v_moved", "and tg_op = 'UPDATE' and (v_moved"
    ),
    "ends are counted twice": Mutation(
        "pgqueue_lane_arm", "least(c.running - s.ended,", "least(c.running - 2 * s.ended,"
    ),
    "a channel takes one too many": Mutation("pgqueue_channel_room", "c.max_size - (", "1 + c.max_size - ("),
    "defer forgets the state": Mutation("pgqueue_message_defer", "coalesce(p_state, m.state)", "p_state"),
    "defer uses an attempt up": Mutation(
        "pgqueue_message_defer", "case when p_error is null and m.max_attempts < 2000000000 then 1 else 0 end", "0"
    ),
    "defer does not hear of a cancel": Mutation(
        "pgqueue_message_defer", "if v_message.cancel_requested_at is not null then", "if false then"
    ),
    "lost attempts do not count": Mutation("pgqueue_message_lose", "v_used >= v_last", "false"),
    "a lost attempt leaves no trace": Mutation(
        "pgqueue_message_lose", "perform pgqueue_attempt_append(p_message, 'lost', false, v_error);", ""
    ),
    "a lost attempt of a task uses max_attempts up": Mutation(
        "pgqueue_message_lose", "m.max_attempts + case", "m.max_attempts + 0 * case"
    ),
    "nothing is quarantined": Mutation("pgqueue_message_lose", "not v_raw and (", "false and ("),
    "a stop quarantines": Mutation("pgqueue_message_lose", "p_blamed is not null and", ""),
    "what was only claimed is lost": Mutation("pgqueue_worker_died", "if v_running is null then", "if false then"),
    "the quarantine forgets channels": Mutation(
        "pgqueue_quarantine_dequeue", "set running = c.running + 1", "set running = c.running"
    ),
    "locks run out too early": Mutation(
        "pgqueue_message_expire", "m.unlock_at <= v_now", "m.unlock_at <= v_now + 59000"
    ),
    "what runs is withdrawn": Mutation("pgqueue_message_cancel", "and coalesce(m.unlock_at, v_now) <= v_now", ""),
    "what runs is moved": Mutation("pgqueue_message_reschedule", "and m.worker is null", ""),
    "run now breaks a dependency": Mutation(
        "pgqueue_message_reschedule", "and (p_break_dependencies or m.after_ids is null)", ""
    ),
    "a retry is the end of a dependency": Mutation("pgqueue_message_look", "and a.final and", "and"),
    "dependents do not wait for all": Mutation(
        "pgqueue_message_look", "v_place := width_bucket(", "v_place := 0 * width_bucket("
    ),
    "debounce locks what runs": Mutation("pgqueue_message_create_unique", "if v_running or", "if"),
    "a step is recorded without the fence": Mutation("pgqueue_step_record", "and m.attempt = p_attempt", ""),
    "a budget has no end": Mutation("pgqueue_budget_spend", "where b.spent + p_amount <= p_limit", ""),
    "a suspended attempt is used up": Mutation(
        "pgqueue_message_suspend", "m.max_attempts + case", "m.max_attempts + 0 * case"
    ),
    "anybody suspends": Mutation("pgqueue_message_suspend", "and m.attempt = p_attempt", ""),
    "nobody looks again for an event": Mutation(
        "pgqueue_message_suspend",
        "insert into pgqueue_ended (message_id, event, look_at) values (0, p_event, v_now);", "",
    ),
    "an emitter tells only those that it sees": Mutation(
        "pgqueue_event_put", "values (0, p_name, pgqueue_now());",
        "select 0, p_name, pgqueue_now() from pgqueue_message m where m.awaited_event = p_name limit 1;",
    ),
    "the last emit wins": Mutation(
        "pgqueue_event_put", "on conflict do nothing", "on conflict (name) do update set payload = excluded.payload"
    ),
    "an event wakes what has begun again": Mutation(
        "pgqueue_event_arrive", "and s.suspended_attempt = s.attempt and s.unlock_at is null", ""
    ),
    "a late worker adds a child": Mutation("pgqueue_child_add", "and m.attempt = p_attempt", ""),
    "children are enqueued again": Mutation(
        "pgqueue_step_load", "where s.message_id = p_id", "where s.message_id = p_id and s.kind <> 'enqueue'"
    ),
    "a parent waits for one of its children": Mutation(
        "pgqueue_message_suspend", "after_ids = case when v_ids <> '{}' then v_ids end",
        "after_ids = case when v_ids <> '{}' then v_ids[cardinality(v_ids):] end",
    ),
    "children outlive a cancelled parent": Mutation(
        "pgqueue_message_cancel", "perform pgqueue_child_cancel(v_ids);", ""
    ),
    "a cancel takes children along that have begun": Mutation(
        "pgqueue_child_cancel", "and d.attempt = 0 and d.unlock_at is null", ""
    ),
    "a slot is used twice": Mutation("pgqueue_schedule_fire", "continue when not found;", ""),
}  # fmt: skip


@contextmanager
def broken(session: Session, mutation: Mutation) -> Iterator[None]:
    """The database of the tests with one function broken."""
    session.rows(mutation.text())
    try:
        yield
    finally:
        session.rows(sql_files()[mutation.file])


@contextmanager
def broken_key(session: Session) -> Iterator[None]:
    """A unique key that is never let go before the end."""
    [definition] = session.column("select indexdef from pg_indexes where indexname = 'pgqueue_message_unique_key_ix'")
    session.rows(UNIQUE)
    try:
        yield
    finally:
        session.rows("drop index pgqueue_message_unique_key_ix")
        session.rows(definition)
