"""Messages enter the queue, one or many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.words import see
from tests.support.sessions import NOON, Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

DESCRIPTIONS: list[dict[str, Any]] = [
    {"content": {"n": 1}},
    {"content": None, "queue": "mail"},
    {"content": [], "task": "shop.tasks.send", "priority": 100},
    {"content": "text", "priority": -100, "dequeue_at": -1},
    {"content": 1.5, "dequeue_at": 2**63 - 1, "channel": "tenant"},
    {"content": {}, "headers": {"trace": 1}, "max_attempts": 1},
    {"content": {}, "max_attempts": None},
]
FINE, NOT_A_NUMBER = {"content": 1}, errors.InvalidTextRepresentation
REFUSED: list[tuple[str, dict[str, Any], type[psycopg.Error]]] = [
    ("pgqueue_message_create", {"content": 1, "priority": 101}, errors.CheckViolation),
    ("pgqueue_message_create", {"content": 1, "priority": -101}, errors.CheckViolation),
    ("pgqueue_message_create", {"content": 1, "priority": 70_000}, errors.NumericValueOutOfRange),
    ("pgqueue_message_create", {"content": 1, "queue": ""}, errors.CheckViolation),
    ("pgqueue_message_create", {"content": 1, "queue": None}, errors.NotNullViolation),
    ("pgqueue_message_create_many", {"messages": {"content": 1}}, errors.InvalidParameterValue),
    ("pgqueue_message_create_many", {"messages": [FINE, {"queue": "mail"}]}, errors.NotNullViolation),
    ("pgqueue_message_create_many", {"messages": [FINE, {"content": 2, "priority": 101}]}, errors.CheckViolation),
    ("pgqueue_message_create_many", {"messages": [FINE, {"content": 2, "priority": "high"}]}, NOT_A_NUMBER),
    ("pgqueue_message_create_many", {"messages": [FINE, {"content": 2, "queue": ""}]}, errors.CheckViolation),
    ("pgqueue_message_create_many", {"messages": [FINE, 2]}, errors.InvalidParameterValue),
    ("pgqueue_message_create_many", {"messages": [FINE, {"content": 2, "prio": 5}]}, errors.InvalidParameterValue),
]


# pgqueue_message_create: one message enters the queue


def test_a_message_with_nothing_but_content_has_the_documented_defaults(session: Session) -> None:
    session.set_clock(NOON)
    message = session.message(session.create({"n": 1}))

    assert message.content == {"n": 1}
    assert (message.queue, message.priority, message.task, message.channel) == ("default", 0, None, None)
    assert (message.dequeue_at, message.attempt, message.max_attempts) == (NOON, 0, 5)
    assert (message.unlock_at, message.locked_at, message.worker) == (None, None, None)
    assert (message.headers, message.state, message.last_error, message.unique_key) == (None, None, None, None)
    assert message.created_at.timestamp() * 1000 == NOON


def test_the_row_has_the_values_of_the_message(session: Session) -> None:
    said = {
        "queue": "mail",
        "task": "shop.tasks.send",
        "priority": -100,
        "dequeue_at": -5,
        "channel": "tenant-7",
        "headers": {"trace": "abc"},
        "max_attempts": None,
    }
    message = session.message(session.create([1, 2], **said))

    assert message.content == [1, 2]
    assert {name: getattr(message, name) for name in said} == said


@pytest.mark.parametrize("content", [None, True, 0, -1.5, "", "é\U0001f375", [], {}, {"a": [{"b": None}]}, [[[]]]])
def test_content_may_be_any_json_value(session: Session, content: Any) -> None:
    assert session.message(session.create(content)).content == content


def test_the_json_null_is_content_and_the_sql_null_is_none(session: Session) -> None:
    json_null = session.create(None)
    assert session.one("select content::text from pgqueue_message where id = %s", [json_null]) == "null"
    with pytest.raises(errors.NotNullViolation):
        session.rows("select pgqueue_message_create(null)")


def test_ten_megabytes_come_back_as_they_were_sent(session: Session) -> None:
    content = {"page": "tea " * 2_621_440}
    session.create(content)
    assert session.take().content == content


def test_messages_of_one_transaction_share_its_time_and_differ_by_id(session: Session) -> None:
    ids = [session.create(n) for n in range(5)]
    messages = session.messages()
    assert [message.id for message in messages] == ids == sorted(ids)
    assert len({message.dequeue_at for message in messages}) == 1
    assert {message.dequeue_at for message in messages} == {session.one("select pgqueue_to_epoch(now())")}
    assert {message.created_at for message in messages} == {session.one("select now()")}


@pytest.mark.parametrize("dequeue_at", [-(2**63), -1, 0, 2**63 - 1])
def test_dequeue_at_may_be_any_bigint(session: Session, dequeue_at: int) -> None:
    assert session.message(session.create(dequeue_at=dequeue_at)).dequeue_at == dequeue_at


@pytest.mark.parametrize(("function", "parameters", "error"), REFUSED)
def test_an_invalid_message_is_refused_with_all_of_its_call_and_others_stay(
    connect: Connect, function: str, parameters: dict[str, Any], error: type[psycopg.Error]
) -> None:
    session = connect()
    kept = session.create()
    with pytest.raises(error):
        session.call(function, **parameters)
    assert [message.id for message in session.messages()] == [kept]


# pgqueue_message_create_many: many messages enter the queue with one statement


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=str)
def test_a_bulk_and_an_item_make_the_same_row_as_a_single_message(
    session: Session, description: dict[str, Any]
) -> None:
    single = session.message(session.create(**description))
    [one_of_many] = session.ids("pgqueue_message_create_many", messages=[description])
    assert session.message(one_of_many) == single._replace(id=one_of_many)
    for key in (None, "invoice 7"):
        item = session.value("pgqueue_message_create_item", message=Jsonb({**description, "unique_key": key}))
        assert session.message(item) == single._replace(id=item, unique_key=key)


def test_ids_come_in_the_order_of_the_array(session: Session) -> None:
    ids = session.create_batch(3000)
    assert ids == sorted(ids)
    assert [message.content for message in session.messages()] == list(range(3000))
    assert [message.content for message in session.dequeue(3000)] == list(range(3000))


def test_an_empty_array_creates_no_messages(session: Session) -> None:
    assert session.ids("pgqueue_message_create_many", messages=[]) == []


def test_null_means_the_default(session: Session) -> None:
    nulls = {"queue": None, "task": None, "priority": None, "dequeue_at": None, "channel": None, "headers": None}
    session.set_clock(NOON)
    session.ids("pgqueue_message_create_many", messages=[{"content": 1, **nulls}])
    [message] = session.messages()
    assert (message.queue, message.priority, message.dequeue_at, message.headers) == ("default", 0, NOON, None)


def test_unknown_keys_are_named(session: Session) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        session.ids("pgqueue_message_create_many", messages=[{"content": 1}, {"content": 2, "prio": 5, "delay": 1}])
    assert caught.value.diag.message_primary == (
        'message 2 of the array is not an object, or has unknown keys: {"prio": 5, "delay": 1}'
    )
    assert "The keys are content, queue, task, priority, dequeue_at, " in str(caught.value.diag.message_hint)


@pytest.mark.parametrize(("name", "others"), [("messages", ""), ("contents", ", p_queue => 'mail'")])
def test_what_is_no_array_is_refused(session: Session, name: str, others: str) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        session.rows(f"""select pgqueue_message_create_many(p_{name} => '{{"content": 1}}'{others})""")
    assert caught.value.diag.message_primary == f"p_{name} is not an array, but of type object"
    assert "into an array" in str(caught.value.diag.message_hint)


def test_one_sleeper_is_woken_for_each_queue_with_a_ready_message(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_w-mail", "pgqueue_w-maps", "pgqueue_w-later")
    for queue in ("mail", "maps", "later"):
        see(producer, f"w-{queue}", queues=[queue], asleep_ms=60_000)

    messages = [{"content": n, "queue": queue} for n in range(10) for queue in ("mail", "maps")]
    messages += [{"content": 0, "queue": "later", "dequeue_at": 2**62}]
    producer.ids("pgqueue_message_create_many", messages=messages)

    assert sorted(listener.heard(producer)) == [("pgqueue_w-mail", "mail"), ("pgqueue_w-maps", "maps")]


# pgqueue_message_create_item: one object of the array that pgqueue_message_create_many takes


def test_an_item_may_have_its_own_conflict_policy(session: Session) -> None:
    item = {"content": "first", "unique_key": "invoice 7", "until_started": True}
    first = session.value("pgqueue_message_create_item", message=Jsonb(item))
    replaced = session.value(
        "pgqueue_message_create_item", message=Jsonb({**item, "content": "second", "on_conflict": "replace"})
    )
    assert replaced == first
    message = session.message(first)
    assert (message.content, message.unique_until_started) == ("second", True)
