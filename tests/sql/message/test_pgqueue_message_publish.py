"""One message for every queue that wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.sql.words import bind, publish, see
from tests.support.cost import cost
from tests.support.databases import empty_database, install, session_in
from tests.support.sessions import NOON, Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


def test_every_queue_whose_pattern_matches_gets_one_message(session: Session) -> None:
    bind(session, "order.#", queue="audit")
    bind(session, "order.created", queue="mail")
    bind(session, "order.paid", queue="books")
    made = publish(session, "order.created", {"order": 7})
    assert [(row.p_queue, row.p_task) for row in made] == [("audit", None), ("mail", None)]
    assert [(m.id, m.queue, m.content) for m in session.messages()] == [
        (row.p_id, row.p_queue, {"order": 7}) for row in made
    ]


def test_the_headers_name_exchange_and_routing_key(session: Session) -> None:
    bind(session, "#")
    publish(session, headers={"trace": "4bf9", "exchange": "not this"})
    assert session.messages()[0].headers == {"trace": "4bf9", "exchange": "orders", "routing_key": "order.created"}


def test_a_task_gets_content_and_routing_key_as_arguments(session: Session) -> None:
    bind(session, "#", task="shop.tasks.audit", max_attempts=None, priority=3)
    publish(session, content={"order": 7})
    [message] = session.messages()
    assert message.content == {"args": [{"order": 7}, "order.created"], "kwargs": {}}
    assert (message.task, message.max_attempts, message.priority) == ("shop.tasks.audit", None, 3)


def test_priority_and_time_may_be_given(session: Session) -> None:
    session.set_clock(NOON)
    bind(session, "#", priority=3)
    publish(session)
    publish(session, priority=-5, dequeue_at=NOON + 1)
    assert [(m.priority, m.dequeue_at) for m in session.messages()] == [(3, NOON), (-5, NOON + 1)]


def test_an_unknown_exchange_is_an_error_with_the_next_step(session: Session) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject, match='"orders"') as refused:
        publish(session)
    assert "pgqueue_exchange_declare('orders')" in str(refused.value.diag.message_hint)


def test_an_unknown_exchange_may_be_a_returned_value(session: Session) -> None:
    assert publish(session, unknown_ok=True) == [(None, None, None)]
    session.value("pgqueue_exchange_declare", name="orders")
    assert publish(session, unknown_ok=True) == []


@pytest.mark.parametrize("key", [None, "x" * 256])
def test_a_routing_key_is_a_text_of_at_most_255_bytes(session: Session, key: str | None) -> None:
    session.value("pgqueue_exchange_declare", name="orders")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="255 bytes"):
        session.call("pgqueue_message_publish", exchange="orders", routing_key=key, content="tea")


def test_concurrent_publishes_do_not_wait_for_each_other(connect: Connect) -> None:
    one, two, third = connect(autocommit=False), connect(autocommit=False), connect()
    for queue in ("mail", "maps"):
        bind(third, "#", queue=queue)
    for session in (one, two):
        session.rows("set lock_timeout = '100ms'")
        publish(session)
    publish(third)
    assert third.take(queues=["mail"]).content == "tea"
    two.commit()
    one.commit()
    assert len(third.messages()) == 6


def test_one_sleeper_of_each_queue_and_the_right_kind_is_woken(connect: Connect) -> None:
    session = connect()
    names = "abcdef"
    listener = Listener(connect(), *[f"pgqueue_{name}" for name in names])
    see(session, "a", queues=["mail"], tasks=False, asleep_ms=MINUTE)
    see(session, "b", queues=["mail"], tasks=False, asleep_ms=MINUTE)
    see(session, "c", queues=["maps"], tasks=False, asleep_ms=MINUTE)
    see(session, "d", queues=["mail"], tasks=True, asleep_ms=MINUTE)
    see(session, "e", queues=["tasks"], tasks=True, asleep_ms=MINUTE)
    see(session, "f", queues=["elsewhere"], tasks=False, asleep_ms=MINUTE)
    for queue in ("mail", "maps"):
        bind(session, "#", queue=queue)
    for task in ("shop.tasks.audit", "shop.tasks.count"):
        bind(session, "#", queue="tasks", task=task)
    publish(session)
    heard = listener.heard(session)
    assert sorted(payload for _, payload in heard) == ["mail", "maps", "tasks"]
    assert {channel for channel, _ in heard} <= {"pgqueue_a", "pgqueue_b", "pgqueue_c", "pgqueue_e"}
    publish(session, dequeue_at=session.one("select pgqueue_now() + 60000"))
    assert listener.heard(session) == []


PUBLISH = "select * from pgqueue_message_publish('orders', 'order.created', '1')"
INDEX = "pgqueue_binding_exchange_ix"


@pytest.mark.slow
def test_a_publish_reads_the_bindings_of_its_exchange_in_one_pass_and_of_no_other(conninfo: str) -> None:
    bind_many = """
        select count(*) from generate_series(%s::integer, %s::integer) as n
        cross join lateral pgqueue_binding_declare(%s, 'other.*.n' || n, 'q' || n)
    """
    with empty_database(conninfo, "publish") as database, session_in(database) as session:
        install(session)
        bind(session, "order.#")
        session.value("pgqueue_exchange_declare", name="others")
        for _ in range(6):
            alone = cost(session, PUBLISH)
        session.rows(bind_many, [1, 1000, "others"])
        for when in ("planned while small", "analysed"):
            beside = cost(session, PUBLISH)
            assert beside.rows == 1
            assert beside.scans[INDEX] == 1, when
            assert beside.entries.get(INDEX) == alone.entries.get(INDEX) == 1, when
            assert beside.buffers <= alone.buffers + 10, when
            session.rows("analyze")
        session.rows(bind_many, [1, 1000, "orders"])
        session.rows("delete from pgqueue_binding where exchange = 'others' and pattern <> 'other.*.n7'")
        to_others = PUBLISH.replace("'orders', 'order.created'", "'others', 'other.x.n7'")
        for when in ("analysed while small", "analysed"):
            one_pass = cost(session, PUBLISH)
            assert one_pass.rows == 1
            assert (one_pass.scans[INDEX], one_pass.entries[INDEX]) == (1, 1001), when
            assert cost(session, to_others).entries[INDEX] == 1, when
            session.rows("analyze")
