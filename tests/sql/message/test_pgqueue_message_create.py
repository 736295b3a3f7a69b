"""One message enters the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


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
    with pytest.raises(psycopg.errors.NotNullViolation):
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


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"priority": 101}, psycopg.errors.CheckViolation),
        ({"priority": -101}, psycopg.errors.CheckViolation),
        ({"priority": 70_000}, psycopg.errors.NumericValueOutOfRange),
        ({"queue": ""}, psycopg.errors.CheckViolation),
        ({"queue": None}, psycopg.errors.NotNullViolation),
    ],
)
def test_an_invalid_message_is_refused_and_others_stay(
    connect: Connect, parameters: dict[str, Any], error: type[psycopg.Error]
) -> None:
    session = connect()
    kept = session.create()
    with pytest.raises(error):
        session.create(**parameters)
    assert [message.id for message in session.messages()] == [kept]


def test_a_savepoint_rolls_back_only_its_messages(connect: Connect) -> None:
    producer, consumer = connect(autocommit=False), connect()
    before = producer.create("before")
    producer.rows("savepoint inner_work")
    producer.create("inside")
    producer.rows("rollback to inner_work")
    after = producer.create("after")
    producer.commit()

    assert [message.id for message in consumer.dequeue(10)] == [before, after]
