"""How many messages a channel takes, and what happens to those that it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.lanes import set_channel
from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def room(session: Session, name: str = "acme") -> int | None:
    answer: int | None = session.value("pgqueue_channel_room", name=name)
    return answer


def test_a_channel_without_limits_has_unlimited_room(session: Session) -> None:
    assert room(session) is None
    session.create(channel="acme")
    session.take()
    assert room(session) is None


def test_waiting_messages_take_room_and_running_ones_do_not(session: Session) -> None:
    set_channel(session, max_size=3)
    session.create(channel="acme")
    session.create(channel="acme", queue="mail")
    session.create(channel="other")
    session.create()
    assert room(session) == 1
    session.take(queues=["mail"])
    assert room(session) == 2


def test_a_full_channel_refuses_without_an_error(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    set_channel(session, max_size=1)
    assert session.create("first", channel="acme") is not None
    refused = {
        "one": session.value("pgqueue_message_create", content=1, channel="acme"),
        "unique": session.call("pgqueue_message_create_unique", unique_key="k", content=1, channel="acme")[0].p_id,
        "after": session.value("pgqueue_message_create_after", after_ids=[1], content=1, channel="acme"),
    }
    assert refused == dict.fromkeys(refused)
    session.create("of another channel", channel="other")
    session.commit()
    assert sorted(m.content for m in other.messages()) == ["first", "of another channel"]


def test_a_bulk_enqueues_as_many_messages_as_there_is_room(session: Session) -> None:
    set_channel(session, max_size=2)
    set_channel(session, "small", max_size=1)
    session.create(channel="acme")
    where = ["acme", None, "small", "acme", "small", "free", "acme", None]
    ids = session.ids(
        "pgqueue_message_create_many", messages=[{"content": n, "channel": name} for n, name in enumerate(where)]
    )
    assert [id_ is not None for id_ in ids] == [True, True, True, False, False, True, False, True]
    by_id = {m.id: m.content for m in session.messages()}
    assert [by_id[id_] for id_ in ids if id_ is not None] == [0, 1, 2, 5, 7]


def test_the_last_messages_of_a_uniform_bulk_are_refused(session: Session) -> None:
    set_channel(session, max_size=2)
    ids = session.rows("select pgqueue_message_create_many('[1, 2, 3, 4]', 'default', p_channel => 'acme')")
    assert [row[0] is None for row in ids] == [False, False, True, True]
    assert [m.content for m in session.messages()] == [1, 2]


def test_messages_with_keys_in_a_bulk_are_refused_too(session: Session) -> None:
    set_channel(session, max_size=1)
    messages = [{"content": n, "channel": "acme", "unique_key": f"k{n}"} for n in range(3)]
    assert [id_ is None for id_ in session.ids("pgqueue_message_create_many", messages=messages)] == [False, True, True]


def test_a_held_key_returns_its_message_even_if_the_channel_is_full(session: Session) -> None:
    set_channel(session, max_size=1)
    first = session.call("pgqueue_message_create_unique", unique_key="k", content=1, channel="acme")[0]
    again = session.call("pgqueue_message_create_unique", unique_key="k", content=2, channel="acme")[0]
    assert (again.p_id, again.p_created) == (first.p_id, False)


def test_a_deferred_message_returns_into_a_full_channel(session: Session) -> None:
    set_channel(session, max_size=1)
    session.create(1, channel="acme", max_attempts=3)
    held = session.take()
    session.create(2, channel="acme")
    assert session.value("pgqueue_message_defer", **token(held), error={"message": "no"}) == "retried"
    assert room(session) == 0


def test_open_enqueues_of_others_are_neither_counted_nor_awaited(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    set_channel(one, max_size=1)
    one.commit()
    assert one.create(channel="acme") is not None
    assert other.create(channel="acme") is not None
    one.commit()
    other.commit()
    assert room(one) == 0
