"""An edit changes everything that matches a filter, in steps: once each, whatever dies meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql.words import behind_policy
from tests.support.sessions import NOON, eventually, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

HOUR_MS = 3_600_000


def ask(session: Session, action: str, filter: dict[str, Any] | None = None, **parameters: Any) -> int:  # noqa: A002
    found: int = session.value(
        "pgqueue_edit_ask", action=action, filter=Jsonb(filter or {}), parameters=Jsonb(parameters)
    )
    return found


def work(session: Session, *, limit: int = 1000) -> int:
    """Does all edits.  Returns the number of steps."""
    steps = 0
    while session.value("pgqueue_edit_step", limit=limit) is not None:
        steps += 1
    return steps


def counts(session: Session, edit: int) -> tuple[int, ...]:
    [row] = session.rows("select done, asked, awaiting, skipped from pgqueue_edit where id = %s", [edit])
    return tuple(row)


def has_finished(session: Session, edit: int) -> bool:
    return bool(session.one("select finished_at is not null and error is null from pgqueue_edit where id = %s", [edit]))


def statuses(session: Session) -> list[str]:
    return [attempt.status for attempt in session.history()]


# pgqueue_edit_ask: the same edit is asked for once


def test_an_edit_that_row_level_security_hides_is_refused(session: Session) -> None:
    """It looked for the edit for ever."""
    ask(session, "cancel")
    with (
        behind_policy(session, "pgqueue_edit", "asked_by = 'ada'"),
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security hides the same edit"),
    ):
        session.value("pgqueue_edit_ask", action="cancel", filter=Jsonb({}), asked_by="ada")


# pgqueue_edit_step: a part of the oldest edit


def test_an_edit_cancels_what_matches_and_asks_running_messages_to_stop(session: Session) -> None:
    session.create(queue="bulk")
    held = session.take()
    session.create_batch(5, queue="bulk")
    session.create(queue="mail")
    edit = ask(session, "cancel", {"queue": "bulk"})
    assert work(session, limit=2) == 4, "seven ids, two in each step"
    assert counts(session, edit) == (5, 1, 0, 0)
    assert has_finished(session, edit)
    assert [message.queue for message in session.messages()] == ["bulk", "mail"]
    assert session.message(held.id).cancel_requested_at is not None
    assert statuses(session) == ["cancelled"] * 5


def test_run_now_leaves_out_messages_that_wait_for_others(session: Session) -> None:
    first = session.create(dequeue_at=NOON * 2)
    waiting = session.value("pgqueue_message_create_after", after_ids=[first], content="tea")
    ready = session.create()
    edit = ask(session, "run_now")
    work(session)
    assert counts(session, edit) == (1, 0, 1, 1)
    assert session.message(waiting).after_ids == [first]
    assert {session.take().id, session.take().id} == {first, ready}


def test_postpone_leaves_alone_what_runs_or_is_due_later(session: Session) -> None:
    session.create()
    held = session.take()
    soon, later = session.create(), session.create(dequeue_at=NOON * 3)
    edit = ask(session, "postpone", run_at=NOON * 2)
    work(session)
    assert counts(session, edit) == (1, 0, 0, 2)
    assert [session.message(one).dequeue_at for one in (soon, later)] == [NOON * 2, NOON * 3]
    assert session.message(held.id).dequeue_at != NOON * 2


def test_messages_move_to_another_queue_with_their_lane_and_change_their_priority(session: Session) -> None:
    session.create("of a channel", queue="bulk", channel="acme")
    session.create("plain", queue="bulk")
    move = ask(session, "move", {"queue": "bulk"}, queue="slow")
    raise_all = ask(session, "prioritise", {}, priority=7)
    work(session)
    assert counts(session, move) == counts(session, raise_all) == (2, 0, 0, 0)
    found = [session.take(queues=["slow"]) for _ in range(2)]
    assert sorted(one.content for one in found) == ["of a channel", "plain"]
    assert {one.priority for one in found} == {7}


def test_deleted_messages_leave_no_trace_and_release_those_that_wait(session: Session) -> None:
    first = session.create(queue="bulk")
    waiting = session.value("pgqueue_message_create_after", after_ids=[first], content="tea", queue="mail")
    edit = ask(session, "delete", {"queue": "bulk"})
    work(session)
    session.call("pgqueue_message_settle")
    assert counts(session, edit) == (1, 0, 0, 0)
    assert session.history() == []
    assert session.take().id == waiting


def test_enqueue_again_makes_each_message_once_and_goes_on_where_the_last_one_ended(session: Session) -> None:
    for _ in range(3):
        session.create()
        session.value("pgqueue_message_fail", **token(session.take()), error={"class": "E"})
    first = ask(session, "enqueue_again", {"status": "failed"})
    work(session, limit=2)
    again = ask(session, "enqueue_again", {"status": "failed"})
    work(session)
    assert (first != again, counts(session, first)[0], counts(session, again)[0]) == (True, 3, 0)
    session.value("pgqueue_message_fail", **token(session.take()), error={"class": "E"})
    third = ask(session, "enqueue_again", {"status": "failed"})
    work(session)
    assert counts(session, third)[0] == 1, "the new failure, and none of the former ones"
    assert len(session.messages()) == 3


def test_a_step_of_a_session_that_dies_is_done_by_another_one_and_nothing_twice(connect: Connect) -> None:
    session = connect()
    session.create()
    session.value("pgqueue_message_fail", **token(session.take()), error={"class": "E"})
    edit = ask(session, "enqueue_again")
    dying = connect(autocommit=False)
    assert dying.value("pgqueue_edit_step") == edit
    assert session.value("pgqueue_edit_step") is None, "another session works on it"
    dying.rollback()
    work(session)
    assert counts(session, edit)[0] == len(session.messages()) == 1


def test_messages_that_another_session_holds_are_tried_again_at_the_end(connect: Connect) -> None:
    session = connect()
    held, free = session.create(), session.create()
    other = connect(autocommit=False)
    other.rows("select from pgqueue_message where id = %s for update", [held])
    edit = ask(session, "cancel")
    assert session.value("pgqueue_edit_step") == edit
    assert (counts(session, edit), has_finished(session, edit)) == ((1, 0, 0, 0), False)
    other.rollback()
    work(session)
    assert counts(session, edit) == (2, 0, 0, 0)
    assert {one.message_id for one in session.history()} == {held, free}


def test_a_message_that_stays_locked_is_counted_as_skipped(connect: Connect) -> None:
    session = connect()
    held = session.create()
    other = connect(autocommit=False)
    other.rows("select from pgqueue_message where id = %s for update", [held])
    edit = ask(session, "cancel")
    work(session)
    assert (counts(session, edit), has_finished(session, edit)) == ((0, 0, 0, 1), True)


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_an_edit_does_not_wait_for_who_lets_only_changes_pass(connect: Connect, action: str) -> None:
    """As one does who decides an approval."""
    session = connect()
    held, _ = session.create(), session.create()
    other = connect(autocommit=False)
    other.rows("select from pgqueue_message where id = %s for key share", [held])
    session.rows("set lock_timeout = '1ms'")
    edit = ask(session, action)
    work(session)
    assert (counts(session, edit), has_finished(session, edit)) == ((1, 0, 0, 1), True)
    assert [message.id for message in session.messages()] == [held]


@pytest.mark.parametrize("is_far", [False, True])
def test_a_message_that_has_changed_since_it_was_found_must_match_again(connect: Connect, is_far: bool) -> None:
    session, other = connect(), connect(autocommit=False)
    moved, begun = session.create(queue="bulk"), session.create(queue="bulk", priority=9)
    if is_far:
        session.rows("update pgqueue_message set id = %s where id = %s", [begun + 10**9, begun])
        begun += 10**9
    other.rows("update pgqueue_message set queue = 'mail' where id = %s", [moved])
    assert other.take().id == begun
    edit = ask(session, "cancel", {"queue": "bulk", "status": "ready"})
    assert session.value("pgqueue_edit_step") == edit
    other.commit()
    work(session)
    assert (counts(session, edit), has_finished(session, edit)) == ((0, 0, 0, 0), True)
    assert [message.cancel_requested_at for message in session.messages()] == [None, None]


def test_a_message_that_got_other_arguments_while_it_was_locked_is_left_alone(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    unique = {"unique_key": "k", "on_conflict": "replace"}
    other.call("pgqueue_message_create_unique", content={"n": 7}, **unique)
    other.commit()
    other.call("pgqueue_message_create_unique", content={"n": 8}, **unique)
    session.create({"n": 7})
    edit = ask(session, "cancel", {"argument": 7})
    assert session.value("pgqueue_edit_step") == edit
    other.commit()
    work(session)
    assert (counts(session, edit), has_finished(session, edit)) == ((1, 0, 0, 0), True)
    assert [message.content for message in session.messages()] == [{"n": 8}]


@pytest.mark.parametrize("step", [{"limit": -1}, {"limit": 0}, {"limit": None}, {"limit": 1, "version": "v" * 101}])
def test_a_step_that_cannot_be_ends_nobodys_edit(connect: Connect, step: dict[str, Any]) -> None:
    session = connect()
    edit = ask(session, "enqueue_again")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        session.value("pgqueue_edit_step", **step)
    work(session)
    assert has_finished(session, edit)


def test_an_error_that_will_come_again_ends_the_edit_with_its_reason(session: Session) -> None:
    session.create(channel="acme")
    session.value("pgqueue_message_fail", **token(session.take()), error={"class": "E"})
    session.call("pgqueue_channel_set", name="acme", max_size=0)
    edit = ask(session, "enqueue_again")
    assert work(session) == 1
    [row] = session.rows("select error, finished_at from pgqueue_edit where id = %s", [edit])
    assert row.error == "the channel of 1 messages is full, or was released"
    assert row.finished_at is not None
    assert session.messages() == []


# pgqueue_edit_ask: what is there now


def test_an_edit_does_not_mean_what_comes_after_it(session: Session) -> None:
    session.create()
    ask(session, "cancel")
    later = session.create()
    work(session)
    assert [message.id for message in session.messages()] == [later]


def test_an_edit_that_stands_means_what_has_come_since_when_it_is_asked_for_again(session: Session) -> None:
    session.create()
    edit = ask(session, "cancel")
    session.value("pgqueue_edit_stop", id=edit)
    session.create()
    assert ask(session, "cancel") == edit
    work(session)
    assert (counts(session, edit), session.messages()) == ((2, 0, 0, 0), [])


def test_an_edit_that_ends_while_it_is_asked_for_again_is_begun_anew(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    edit = ask(session, "cancel")
    other.rows("select from pgqueue_edit where id = %s for update", [edit])
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(ask, session, "cancel")
        eventually(lambda: other.waits_for_a_lock(session))
        other.rows("update pgqueue_edit set finished_at = now() where id = %s", [edit])
        other.commit()
        assert again.result() > edit


def test_a_second_click_asks_for_nothing_more(session: Session) -> None:
    assert ask(session, "cancel", {"queue": "bulk"}) == ask(session, "cancel", {"queue": "bulk"})
    assert ask(session, "cancel", {"queue": "mail"}) != ask(session, "cancel", {"queue": "bulk"})


def test_without_a_name_the_role_of_the_session_has_asked(session: Session) -> None:
    edit = ask(session, "cancel")
    assert session.one("select asked_by = session_user from pgqueue_edit where id = %s", [edit]) is True


# pgqueue_edit_stop: it stands
# pgqueue_edit_resume: and goes on


def test_a_stopped_edit_stands_until_it_is_resumed(session: Session) -> None:
    session.create_batch(4)
    edit = ask(session, "cancel")
    session.call("pgqueue_edit_step", limit=2)
    assert session.value("pgqueue_edit_stop", id=edit) is True
    assert session.value("pgqueue_edit_stop", id=edit) is False
    assert (work(session), len(session.messages())) == (0, 2)
    assert session.value("pgqueue_edit_resume", id=edit) is True
    work(session)
    assert session.messages() == []
    assert session.value("pgqueue_edit_resume", id=edit) is False


# pgqueue_edit_change: the messages of one step


def test_a_change_counts_each_message_once(session: Session) -> None:
    ids = session.create_batch(3)
    [row] = session.call("pgqueue_edit_change", action="delete", parameters=Jsonb({}), ids=[*ids, 10**12])
    assert tuple(row) == (3, 0, 0, 0, [])


# pgqueue_edit_messages: which messages match


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({}, "abcd"),
        ({"queue": "mail"}, "ab"),
        ({"task": "shop.send"}, "b"),
        ({"raw": True}, "acd"),
        ({"task_contains": "SEND"}, "b"),
        ({"channel": "acme"}, "c"),
        ({"status": "scheduled"}, "d"),
        ({"status": "ready", "queue": "maps"}, "c"),
        ({"priority_from": 5}, "b"),
        ({"priority_until": 4}, "acd"),
        ({"run_at_from": NOON + 1}, "d"),
        ({"created_from": 0, "created_until": 1}, ""),
        ({"argument": 7}, "bc"),
        ({"argument": "7"}, "c"),
        ({"argument": "tea"}, "a"),
        ({"error_contains": "boom"}, ""),
        ({"error_group": "0123456789ab"}, ""),
    ],
)
def test_a_filter_finds_these_messages(session: Session, filter: dict[str, Any], found: str) -> None:  # noqa: A002
    session.set_clock(NOON)
    a = session.create("tea", queue="mail")
    b = session.create({"args": [[7]], "kwargs": {}}, queue="mail", task="shop.send", priority=5)
    c = session.create({"order": "7"}, queue="maps", channel="acme")
    d = session.create("later", queue="maps", dequeue_at=NOON + HOUR_MS)
    [row] = session.call("pgqueue_edit_messages", filter=Jsonb(filter), after=a - 1, until=d)
    names = dict(zip((a, b, c, d), "abcd", strict=True))
    assert "".join(names[one] for one in row.p_ids) == found
    assert row.p_last == d


# pgqueue_edit_attempts: which ended messages match


def test_a_filter_finds_the_failures_of_a_group(session: Session) -> None:
    for error in ("no route to 10.0.0.1", "no route to 10.0.0.2", "disk full"):
        session.create({"order": error})
        session.value("pgqueue_message_fail", **token(session.take()), error={"class": "OSError", "message": error})
    one = session.value(
        "pgqueue_attempt_error_group", **{"class": "OSError"}, message="no route to 172.16.5.9", traceback=None
    )
    first, _, last = (attempt.id for attempt in session.history())

    def matches(**filter: Any) -> int:  # noqa: A002
        [row] = session.call("pgqueue_edit_attempts", filter=Jsonb(filter), after=first - 1, until=last)
        return len(row.p_ids)

    assert matches(error_group=one) == 2
    assert matches(error_class="oserr", status="failed") == matches(error="oserr") == 3
    assert matches(error="DISK") == 1
    assert matches(error_contains="DISK") == matches(argument="disk full") == 1


# pgqueue_edit_check: what is no edit


@pytest.mark.parametrize(
    ("action", "filter", "parameters", "says"),
    [
        ("explode", {}, {}, "p_action is 'explode'"),
        ("cancel", [], {}, "no JSON object"),
        ("cancel", {"qeue": "mail"}, {}, "'qeue' is no part of a filter for cancel"),
        ("cancel", {"finished_from": 1}, {}, "is no part of a filter"),
        ("enqueue_again", {"run_at_from": 1}, {}, "is no part of a filter"),
        ("cancel", {"status": "failed"}, {}, "is one of scheduled"),
        ("cancel", {"queue": None}, {}, "must be a text"),
        ("cancel", {"priority_from": 1.5}, {}, "must be a whole number"),
        ("cancel", {"raw": "yes"}, {}, "must be true or false"),
        ("cancel", {"argument": {}}, {}, "must be a text, a number"),
        ("cancel", {}, {"queue": "mail"}, "must be {}"),
        ("move", {}, {}, 'must be {"queue": ...}'),
        ("move", {}, {"queue": ""}, "queue is"),
        ("move", {}, {"queue": "bulk\n"}, r'queue is "bulk\\n"'),
        ("prioritise", {}, {"priority": 101}, "priority is 101"),
        ("postpone", {}, {"run_at": "now"}, "run_at is"),
    ],
)
def test_an_edit_that_nobody_understands_is_refused(
    session: Session,
    action: str,
    filter: Any,  # noqa: A002
    parameters: Any,
    says: str,
) -> None:
    with pytest.raises(psycopg.DataError, match=says.replace("{", r"\{")):
        session.call("pgqueue_edit_ask", action=action, filter=Jsonb(filter), parameters=Jsonb(parameters))
