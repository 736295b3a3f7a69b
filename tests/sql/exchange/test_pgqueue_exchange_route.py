"""Queues that a routing key reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.words import bind, queues, route

if TYPE_CHECKING:
    from tests.support.sessions import Session

# More than three words, empty ones, parts of words, and characters that mean something elsewhere: the short ones are
# all tried in test_topics_match_as_amqp_defines.
MATCHES = {
    "order..paid": ["order..paid", "order.*.paid", "order.#.paid"],
    "order.a.b.c.paid": ["order.#.paid", "#.b.#", "order.*.#.paid", "order.#.*.paid", "#.*.#.*.#.paid"],
    "a.b.a.b": ["a.b.a.b", "#.a.b", "a.#.a.*", "*.b.#.b", "#.a.#.a.#"],
    "100%.sure": ["100%.*", "100%.sure", "#.sure"],
    "snake_case.x": ["snake_case.*", "snake_case.#"],
    "tea (green).t+c": ["tea (green).*", "*.t+c", "tea (green).t+c"],
    r"back\slash.x": [r"back\slash.#", r"back\slash.*"],
    "größe.ä": ["größe.*", "*.ä"],
    "two\nlines.x": ["#.x", "*.x", "two\nlines.*"],
}
DIFFERS = {
    "order": ["orders", "Order"],
    "order.created": ["order.#.*.*", "rder.#", "#.reated", "order.c"],
    "order.17.paid": ["order.*.*.paid"],
    "order..paid": ["order.paid"],
    "orders.17.paid": ["order.#", "order.*.paid"],
    "order.17.unpaid": ["order.#.paid", "#.paid"],
    "x.y.a.b.z": ["*.a.#.b.*", "*.a.b.*"],
    "100x.sure": ["100%.sure", "100%.*"],
    "snakeXcase.x": ["snake_case.*"],
    "tea green.tc": ["tea (green).*", "*.t+c"],
}


@pytest.mark.parametrize(("key", "pattern"), [(key, each) for key, patterns in MATCHES.items() for each in patterns])
def test_a_topic_matches(session: Session, key: str, pattern: str) -> None:
    bind(session, pattern)
    assert queues(session, key) == ["mail"]


@pytest.mark.parametrize(("key", "pattern"), [(key, each) for key, patterns in DIFFERS.items() for each in patterns])
def test_a_topic_does_not_match(session: Session, key: str, pattern: str) -> None:
    bind(session, pattern)
    assert queues(session, key) == []


def test_topics_match_as_amqp_defines(session: Session) -> None:
    """Every pattern and every key of up to three words, against a definition that is written out."""

    def matches(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
        if not pattern:
            return not key
        if pattern[0] == "#":
            return matches(pattern[1:], key) or bool(key and matches(pattern, key[1:]))
        return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])

    def up_to_three(words: list[str]) -> list[tuple[str, ...]]:
        pairs = [(a, b) for a in words for b in words]
        return [(), *[(a,) for a in words], *pairs, *[(*pair, c) for pair in pairs for c in words]]

    patterns = up_to_three(["a", "b", "*", "#"])
    session.value("pgqueue_exchange_declare", name="orders")
    for pattern in patterns:
        bind(session, ".".join(pattern), queue=f"q.{'.'.join(pattern)}")
    for key in up_to_three(["a", "b"]):
        wanted = {f"q.{'.'.join(pattern)}" for pattern in patterns if matches(pattern, key)}
        assert set(queues(session, ".".join(key))) == wanted


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("^order[.]", "order.created", True),
        ("created", "order.created.twice", True),  # anywhere, as the operator ~ of pg_mq
        ("^created", "order.created", False),
        ("^.*$", "", True),
        ("^order[.](created|paid)$", "order.paid", True),
        ("^order[.](created|paid)$", "order.unpaid", False),
        ("(?i)PAID$", "order.paid", True),
        ("a*b", "b", True),
    ],
)
def test_a_regular_expression_is_postgresqls(session: Session, pattern: str, key: str, matches: bool) -> None:
    bind(session, pattern, kind="regex")
    assert bool(queues(session, key)) == matches


def test_several_bindings_of_a_queue_are_one_message(session: Session) -> None:
    bind(session, "order.#", priority=1, max_attempts=2)
    bind(session, "*.created", priority=9, max_attempts=7)
    bind(session, "created$", kind="regex")
    [found] = route(session, "order.created")
    assert (found.p_queue, found.p_task, found.p_priority, found.p_max_attempts) == ("mail", None, 9, 7)
    assert found.p_patterns == ["*.created", "created$", "order.#"]


def test_a_queue_and_each_task_in_it_are_messages_of_their_own(session: Session) -> None:
    bind(session, "#")
    bind(session, "#", task="shop.tasks.audit", max_attempts=None)
    bind(session, "#", task="shop.tasks.count")
    bind(session, "order.*", task="shop.tasks.count")
    found = [(row.p_queue, row.p_task, row.p_max_attempts) for row in route(session, "order.created")]
    assert found == [("mail", "shop.tasks.audit", None), ("mail", "shop.tasks.count", 5), ("mail", None, 5)]


def test_bindings_of_other_exchanges_are_ignored(session: Session) -> None:
    bind(session, "#", exchange="invoices")
    session.value("pgqueue_exchange_declare", name="orders")
    assert queues(session, "order.created") == []


def test_an_unknown_exchange_or_a_null_key_reaches_nothing(session: Session) -> None:
    bind(session, "order.#")
    assert route(session, "order.created", exchange="nowhere") == []
    assert session.call("pgqueue_exchange_route", exchange="orders", routing_key=None) == []
