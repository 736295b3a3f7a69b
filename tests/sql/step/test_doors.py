"""What psql may say to the functions of durable tasks: each bad value gets a sentence and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.values.names import is_name

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.once

TABLES = ("step", "event", "budget", "child", "approval", "ended")
LONG = "repeat('n', 10000)"
LARGE = f"'[{'1e131071,' * 130}1]'"
"""2 kB of jsonb, and 17 MB of text."""
NO_NAME = {
    "null": "is NULL, of 0 bytes",
    "''": "is '', of 0 bytes",
    LONG: "is 'nnnnn",
    "'a' || chr(10)": 'is "a\\n", with a control character',
    "'a' || chr(1)": 'is "a\\u0001", with a control character',
    "'a' || chr(127)": 'is "a\x7f", with a control character',
}
HELD = "%(id)s, 1"

# pgqueue_name_require: the names of steps, events, budgets, permissions and people
# pgqueue_step_refuse: the error of a record that the table would refuse
REFUSED = {
    **{f"pgqueue_step_record({HELD}, {name})": f"the name of a step {says}" for name, says in NO_NAME.items()},
    f"pgqueue_step_record({HELD}, 'a', p_kind => 'stop')": "p_kind of the step a is 'stop'",
    f"pgqueue_step_record({HELD}, 'a', p_kind => null)": "p_kind of the step a is NULL",
    f"pgqueue_step_record({HELD}, 'a', p_status => '')": "p_status of the step a is ''",
    f"pgqueue_step_record({HELD}, 'a', p_started_at => 'infinity')": "p_started_at of the step a is infinity",
    f"pgqueue_step_record({HELD}, 'a', {LARGE})": "result has 17",
    "pgqueue_step_record_many(array[%(id)s, %(id)s], '{1, 1}', array[%(worker)s, %(worker)s], array['a', ''],"
    " '{1, 2}', '{step, step}', '{done, done}', '{null, null}')": "the name of a step is '', of 0 bytes",
    "pgqueue_step_record_many(array[%(id)s, %(id)s], '{1, 1}', array[%(worker)s, %(worker)s], array['a'],"
    " null, '{step, step}', '{done, done}', null)": "the name of a step is NULL",
    "pgqueue_step_record_many(array[%(id)s], '{1}', array[%(worker)s], array[e'a\\x1bb'], '{1}', '{step}', '{done}',"
    " '{null}')": 'the name of a step is "a\\u001bb", with a control character',
    f"pgqueue_message_suspend({HELD})": "would wait for nothing, and so for ever",
    **{
        f"pgqueue_message_suspend({HELD}, null, {name}, p_until => 0)": f"the name of a step {says}"
        for name, says in NO_NAME.items()
        if name != "null"
    },
    f"pgqueue_message_suspend({HELD}, null, 'a', 'stop', 0)": "p_kind is 'stop'",
    f"pgqueue_message_suspend({HELD}, null, 'a', null, 0)": "p_kind is NULL",
    **{
        f"pgqueue_message_suspend({HELD}, null, 'a', 'event', null, {name})": f"the name of an event {says}"
        for name, says in NO_NAME.items()
        if name != "null"
    },
    f"pgqueue_message_suspend({HELD}, null, 'a', 'event', null, 'pgqueue:x')": "'pgqueue:x', which nobody can emit",
    f"pgqueue_message_suspend({HELD}, null, null, 'approval', 0)": "an approval without a name",
    f"pgqueue_message_suspend({HELD}, null, 'a', 'approval', null, 'x')": "event 'x', which no decision of 'a' emits",
    f"pgqueue_message_suspend({HELD}, null, 'a', 'approval', p_permission => '')": "the name of a permission is ''",
    f"pgqueue_message_suspend({HELD}, null, 'a', 'approval', p_details => {LARGE})": "p_details has 17",
    f"pgqueue_message_suspend({HELD}, p_after_ids => array[%(id)s])": "would wait for itself",
    f"pgqueue_message_suspend({HELD}, p_after_ids => array(select generate_series(1, 100001)))": "has 100001 ids",
    **{f"pgqueue_event_emit({name})": f"the name of an event {says}" for name, says in NO_NAME.items()},
    "pgqueue_event_emit('pgqueue:x')": "the name of the event 'pgqueue:x' begins with pgqueue:",
    "pgqueue_event_emit('paid', null)": "the payload of the event paid is null",
    "pgqueue_event_emit('paid', 'null')": "the payload of the event paid is null",
    "pgqueue_event_emit('paid', '1e4300')": "a number of more than 4300 digits",
    "pgqueue_event_emit('paid', (repeat('[', 1001) || repeat(']', 1001))::jsonb)": "more than 1000 levels deep",
    f"pgqueue_event_emit('paid', {LARGE})": "payload has 17",
    "pgqueue_event_put(null, '1')": "the name of an event is NULL",
    "pgqueue_event_put(e'paid\\n', '1')": 'the name of an event is "paid\\n", with a control character',
    "pgqueue_event_put('paid', null)": "the payload of the event paid is null",
    **{f"pgqueue_budget_spend({HELD}, {name}, 1, 2)": f"the name of a budget {says}" for name, says in NO_NAME.items()},
    f"pgqueue_budget_spend({HELD}, 'tokens', -1, 2)": "p_amount is -1, and p_limit is 2",
    f"pgqueue_budget_spend({HELD}, 'tokens', 1e30, 2)": "p_amount is 1000000000",
    f"pgqueue_budget_spend({HELD}, 'tokens', 1, 1e-31)": "p_limit is 0.00000",
    f"pgqueue_budget_spend({HELD}, 'tokens', 'NaN', 2)": "p_amount is NaN",
    f"pgqueue_budget_spend({HELD}, 'tokens', null, 2)": "p_amount is <NULL>",
    f"pgqueue_child_add({HELD}, null)": "p_child_id of the message",
    f"pgqueue_child_add({HELD}, %(id)s)": "p_child_id of the message",
    f"pgqueue_child_add({HELD}, 7, p_cancels => null)": "p_cancels of the child 7 is null",
    **{
        f"pgqueue_approval_decide(%(id)s, 'a', true, {name})": f"the name of who decides {says}"
        for name, says in NO_NAME.items()
        if "chr" not in name  # users have the names that they have
    },
    "pgqueue_approval_decide(%(id)s, 'a', null, 'ada')": "p_approved is null",
    f"pgqueue_approval_decide(%(id)s, 'a', true, 'ada', {LONG} || 'n')": "the comment has 10001 bytes",
    "pgqueue_step_enqueue(%(id)s, 'a')": "has not ended",
    "pgqueue_step_enqueue(null, 'a')": "message <NULL> has not ended",
    "pgqueue_step_partition(null)": "p_day is <NULL>",
    "pgqueue_step_partition('infinity')": "p_day is infinity",
    "pgqueue_step_maintain(-1)": "p_days_ahead is -1",
    "pgqueue_step_maintain(1, -1)": "p_days_kept is -1",
}
"""Calls, and what their error says."""
BY_POSTGRESQL = {
    "pgqueue_event_emit('paid', 'no JSON')": "invalid input syntax for type json",
    "pgqueue_event_emit(chr(0))": "null character not permitted",
    f"pgqueue_step_record({HELD}, 'a', '\"\\u0000\"')": "unsupported Unicode escape sequence",
    f"pgqueue_budget_spend({HELD}, 'tokens', 'many', 2)": 'invalid input syntax for type numeric: "many"',
    "pgqueue_message_suspend(9223372036854775808, 1, p_until => 0)": "does not exist",
}
"""Values that no function gets to see."""
NOT_HELD = ("%(id)s, 2", "%(id)s, 0", "%(id)s, -1", "%(id)s, null", "%(id)s, 2147483647", "-1, 1", "null, 1")
ANSWERED = {
    **{f"pgqueue_step_record({token}, 'a')": [(False,)] for token in NOT_HELD},
    **{f"pgqueue_message_suspend({token}, p_until => 0)": [(None,)] for token in NOT_HELD},
    **{f"pgqueue_budget_spend({token}, 'tokens', 1, 2)": [(False, None, None)] for token in NOT_HELD},
    **{f"pgqueue_child_add({token}, 7)": [(False,)] for token in NOT_HELD},
    "pgqueue_step_record_many('{null}', '{1}', '{w}', '{a}', '{1}', '{step}', '{done}', '{null}')": [],
    "pgqueue_step_load(null, now())": [],
    "pgqueue_step_result(-1, null, null)": [(None,)],
    "pgqueue_child_outcomes(%(id)s, null)": [],
    "pgqueue_child_outcomes(%(id)s, '{-1}')": [(-1, "unknown", None, None, None)],
    "pgqueue_child_cancel(null)": [(0,)],
    "pgqueue_child_keep(null)": [(0,)],
    "pgqueue_event_arrive(null)": [(0,)],
    "pgqueue_approval_decide(%(id)s, null, true, 'ada')": [("unknown",)],
    "pgqueue_approval_decide(%(id)s, 'a', true, e'ada\\n')": [("unknown",)],
}
"""Calls that nobody has to be told of in an error, and their answers."""


def test_bad_input_is_answered_with_a_sentence_and_nothing_is_lost(connect: Connect) -> None:
    session = connect()
    session.create(task="t")
    held = session.take(tasks=True)
    told = {"id": held.id, "worker": held.worker}
    before = session.message(held.id)
    answers = {call: answer(session, call, told) for call in [*REFUSED, *BY_POSTGRESQL, *ANSWERED]}
    wrong = {call: answers[call] for call, says in REFUSED.items() if not is_a_sentence(answers[call], says)}
    wrong |= {call: answers[call] for call, says in BY_POSTGRESQL.items() if says not in str(answers[call])}
    wrong |= {call: answers[call] for call, expected in ANSWERED.items() if answers[call] != expected}
    assert wrong == {}
    assert session.message(held.id) == before
    assert [name for name in TABLES if session.rows(f"select from pgqueue_{name}")] == []


def test_the_functions_that_know_control_characters_agree_with_python(connect: Connect) -> None:
    session = connect()
    session.create(task="t")
    held = session.take(tasks=True)
    told = {"id": held.id, "worker": held.worker}
    many = "array[%(id)s], '{1}', array[%(worker)s], array[%(name)s], '{1}', '{step}', '{done}', '{null}'"
    calls = (
        "pgqueue_name_require(%(name)s, 'a step')",
        f"pgqueue_step_record({HELD}, %(name)s, p_worker => %(worker)s)",
        f"pgqueue_step_record_many({many})",
    )
    for number in (*range(1, 0xA1), 0x2028, 0x1F600):
        told["name"] = f"a{chr(number)}"
        refused = [isinstance(answer(session, call, told), psycopg.Error) for call in calls]
        assert refused == [not is_name(told["name"])] * len(calls), hex(number)
        # Who decides may have any name: a control character counts as a blank.
        assert answer(session, "pgqueue_approval_decide(%(id)s, 'a', true, %(name)s)", told) == [("unknown",)]


def answer(session: Session, call: str, told: dict[str, Any]) -> Any:
    try:
        return [tuple(row) for row in session.rows(f"select * from {call}", told)]
    except psycopg.Error as error:
        return error


def is_a_sentence(error: Any, says: str) -> bool:
    return (
        isinstance(error, psycopg.Error)
        and not isinstance(error, psycopg.IntegrityError)
        and says in str(error.diag.message_primary)
        and bool(error.diag.message_hint)
    )


def test_a_step_is_read_by_who_does_not_know_when_its_message_was_created(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    assert session.value("pgqueue_step_record", id=held.id, attempt=1, name="one", result="x")
    assert session.one("select p_name from pgqueue_step_load(%s, null)", [held.id]) == "one"
    assert session.one("select pgqueue_step_result(%s, null, 'one')", [held.id]) == "x"


def test_an_approval_waits_for_its_decision_by_itself(session: Session) -> None:
    session.create(task="t")
    held = session.take(tasks=True)
    assert session.value("pgqueue_message_suspend", id=held.id, attempt=1, name="ok", kind="approval") == "suspended"
    session.value("pgqueue_approval_decide", message_id=held.id, name="ok", approved=True, by="ada")
    assert session.take(tasks=True).id == held.id
