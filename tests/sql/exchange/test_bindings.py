"""Exchanges and bindings are made once, changed by declaring them again, and deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import bind, publish
from tests.support.sessions import concurrently

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_exchange_declare: an exchange is made once, by whoever comes first


def test_it_returns_whether_the_exchange_is_new(session: Session) -> None:
    assert session.value("pgqueue_exchange_declare", name="orders") is True
    assert session.value("pgqueue_exchange_declare", name="orders") is False
    assert session.rows("select name, declared from pgqueue_exchange") == [("orders", False)]


def test_a_declared_exchange_stays_declared(session: Session) -> None:
    session.value("pgqueue_exchange_declare", name="orders")
    session.value("pgqueue_exchange_declare", name="orders", declared=True)
    session.value("pgqueue_exchange_declare", name="orders")
    assert session.one("select declared from pgqueue_exchange") is True


def test_concurrent_declarations_make_one_exchange(connect: Connect) -> None:
    sessions = [connect() for _ in range(4)]
    answers = concurrently([partial(each.value, "pgqueue_exchange_declare", name="orders") for each in sessions])
    assert sorted(answers) == [False, False, False, True]


# pgqueue_exchange_delete: an exchange goes with its bindings; what it has enqueued stays


def test_only_the_exchange_and_its_bindings_are_deleted(session: Session) -> None:
    bind(session, "#")
    bind(session, "#", exchange="other")
    publish(session)
    assert session.value("pgqueue_exchange_delete", name="orders") is True
    assert session.column("select exchange from pgqueue_binding") == ["other"]
    assert session.value("pgqueue_exchange_delete", name="orders") is False
    assert session.take(queues=["mail"]).content == "tea"


# pgqueue_binding_declare: a binding is made once and changed by declaring it again


def binding(session: Session) -> Any:
    [found] = session.rows("select * from pgqueue_binding")
    return found


def test_a_binding_is_a_row_with_all_given_values(session: Session) -> None:
    said: dict[str, Any] = {
        "task": "shop.tasks.audit",
        "kind": "regex",
        "priority": 7,
        "max_attempts": None,
        "declared": True,
    }
    answer = bind(session, "^a", queue="audit", **said)
    row = binding(session)
    assert {name: getattr(row, name) for name in said} == said
    assert (row.id, row.exchange, row.pattern, row.queue) == (answer.p_id, "orders", "^a", "audit")
    assert answer.p_changed


def test_the_defaults_are_those_of_a_raw_message(session: Session) -> None:
    bind(session, "order.#")
    row = binding(session)
    assert (row.kind, row.priority, row.max_attempts, row.task, row.declared) == ("topic", 0, 5, None, False)


def test_a_repeated_declaration_changes_nothing(session: Session) -> None:
    first = bind(session, "order.#")
    again = bind(session, "order.#")
    assert (again.p_id, again.p_changed) == (first.p_id, False)


def test_other_values_update_the_binding(session: Session) -> None:
    first = bind(session, "order.#")
    again = bind(session, "order.#", priority=5, max_attempts=None)
    assert (again.p_id, again.p_changed) == (first.p_id, True)
    assert (binding(session).priority, binding(session).max_attempts) == (5, None)


def test_a_declared_binding_stays_declared(session: Session) -> None:
    bind(session, "order.#", declared=True)
    assert bind(session, "order.#").p_changed is False
    assert binding(session).declared


def test_a_binding_follows_the_new_queue_of_its_task(session: Session) -> None:
    first = bind(session, "#", queue="default", task="shop.tasks.audit")
    again = bind(session, "#", queue="mail", task="shop.tasks.audit")
    assert (again.p_id, again.p_changed) == (first.p_id, True)
    assert binding(session).queue == "mail"


def test_different_queues_patterns_kinds_and_exchanges_are_different_bindings(session: Session) -> None:
    made = [
        bind(session, "a"),
        bind(session, "a", queue="maps"),
        bind(session, "b"),
        bind(session, "a", kind="regex"),
        bind(session, "a", exchange="other"),
        bind(session, "a", task="shop.tasks.audit"),
    ]
    assert len({each.p_id for each in made}) == 6


CHECK = psycopg.errors.CheckViolation
REFUSED: list[tuple[dict[str, Any], type[psycopg.Error]]] = [
    ({"exchange": ""}, CHECK),
    ({"exchange": "x" * 256}, CHECK),
    ({"priority": 101}, CHECK),
    ({"queue": ""}, CHECK),
    ({"pattern": "a*"}, psycopg.errors.DataError),
    ({"pattern": "(", "kind": "regex"}, psycopg.errors.DataError),
]


@pytest.mark.parametrize(("wrong", "error"), REFUSED, ids=str)
def test_an_invalid_exchange_or_binding_is_refused(
    session: Session, wrong: dict[str, Any], error: type[psycopg.Error]
) -> None:
    with pytest.raises(error):
        bind(session, **{"pattern": "#", **wrong})


def test_a_binding_to_an_unknown_exchange_is_an_error_with_the_next_step(session: Session) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject, match='"nowhere"') as refused:
        session.call("pgqueue_binding_declare", exchange="nowhere", pattern="#", queue="mail")
    assert "pgqueue_exchange_declare('nowhere')" in str(refused.value.diag.message_hint)


def test_concurrent_declarations_make_one_binding(connect: Connect) -> None:
    sessions = [connect() for _ in range(4)]
    sessions[0].value("pgqueue_exchange_declare", name="orders")
    answers = concurrently([partial(bind, each, "#") for each in sessions])
    assert len({answer.p_id for answer in answers}) == 1
    assert [answer.p_changed for answer in answers].count(True) == 1


def test_binding_and_publishing_do_not_wait_for_each_other(connect: Connect) -> None:
    publisher, binder, other = connect(autocommit=False), connect(autocommit=False), connect()
    bind(other, "#")
    for session in (publisher, binder, other):
        session.rows("set lock_timeout = '200ms'")
    publisher.commit()
    publish(publisher)  # is not committed
    bind(binder, "#", priority=9)
    bind(binder, "order.*", queue="maps")
    binder.value("pgqueue_exchange_declare", name="orders", declared=True)
    binder.value("pgqueue_binding_delete", exchange="orders", pattern="#", queue="mail")
    assert [row.p_queue for row in publish(other)] == ["mail"]  # what is not committed is not there yet
    binder.commit()
    assert [row.p_queue for row in publish(other)] == ["maps"]
    binder.value("pgqueue_exchange_delete", name="orders")
    assert [row.p_queue for row in publish(other)] == ["maps"]
    binder.commit()
    publisher.commit()


# pgqueue_binding_delete: a binding that is gone takes no messages


def test_a_deleted_binding_gets_no_message_and_earlier_ones_stay(session: Session) -> None:
    bind(session, "order.#")
    publish(session)
    assert session.value("pgqueue_binding_delete", exchange="orders", pattern="order.#", queue="mail") is True
    assert publish(session) == []
    assert len(session.messages()) == 1
    assert session.value("pgqueue_binding_delete", exchange="orders", pattern="order.#", queue="mail") is False


@pytest.mark.parametrize(
    "other", [{"exchange": "invoices"}, {"pattern": "#"}, {"queue": "maps"}, {"task": "a.b"}, {"kind": "regex"}]
)
def test_only_the_named_binding_is_deleted(session: Session, other: dict[str, str]) -> None:
    bind(session, "order.#")
    named = {"exchange": "orders", "pattern": "order.#", "queue": "mail", **other}
    assert session.value("pgqueue_binding_delete", **named) is False
    assert len(publish(session)) == 1
