"""A pattern is looked at when it is bound, so that publishing never stumbles over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Session

MAX_KEYS = (
    "repeat('a', 254) || 'b'",
    "repeat('ab', 127) || 'c'",
    "left(md5('1') || md5('2') || md5('3') || md5('4') || md5('5') || md5('6') || md5('7') || md5('8'), 255)",
    "repeat('a.', 127)",
)
"""Some that are hard for many expressions."""


def compiled(session: Session, pattern: str, kind: str = "topic") -> tuple[str, str | None]:
    [row] = session.call("pgqueue_binding_compile", kind=kind, pattern=pattern)
    return row.p_likeness, row.p_regex


@pytest.mark.parametrize("pattern", ["order.created", "order.#", "#", ""])
def test_the_usual_topics_need_no_regular_expression(session: Session, pattern: str) -> None:
    assert compiled(session, pattern)[1] is None


@pytest.mark.parametrize("pattern", ["order.*", "#.paid", "*", "#.#"])
def test_other_topics_become_an_anchored_regex(session: Session, pattern: str) -> None:
    regex = compiled(session, pattern)[1]
    assert regex is not None
    assert regex[0] + regex[-1] == "^$"


@pytest.mark.parametrize("pattern", ["order.*x", "ord#er", "**", "a.##.b", "#a"])
def test_a_topic_with_a_wildcard_in_a_word_is_refused_by_name(session: Session, pattern: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        compiled(session, pattern)
    assert f'"{pattern}"' in str(refused.value)
    assert "whole words" in str(refused.value.diag.message_hint)


@pytest.mark.parametrize(
    "pattern",
    [
        "order[",
        "(",
        "a{3,1}",
        "*a",
        r"(a+)\1",
        r"^(.*)\.(.*)\.\2$",
        r"(?b)\(a\)\1",
        r"\\(.)\1",
        "x{2,130}",
        "(a?b?c?d?){2}(a?b?c?d?){99}",
        "^" + "x" * 120 + "{10}",
        "a\\",
        r"\u12",
    ],
)
def test_a_bad_regular_expression_is_refused_by_name(session: Session, pattern: str) -> None:
    with pytest.raises(psycopg.errors.InvalidRegularExpression) as refused:
        compiled(session, pattern, "regex")
    assert f'"{pattern}"' in str(refused.value)


def test_a_regular_expression_that_is_slow_to_compile_is_refused_each_time(session: Session) -> None:
    """PostgreSQL keeps what it has built: the second try must not look quick."""
    session.rows("savepoint before")
    for _ in range(2):
        with pytest.raises(psycopg.errors.InvalidRegularExpression, match=r"takes \d+ ms"):
            compiled(session, "(" + "a?" * 38 + "){12}x", "regex")
        session.rows("rollback to savepoint before")


@pytest.mark.parametrize("pattern", [r"\\1", r"[.]\d+$", "(?!internal)", "x{2,120}", r"a\{b", "(?i)a|b", ""])
def test_a_harmless_regular_expression_is_accepted(session: Session, pattern: str) -> None:
    assert compiled(session, pattern, "regex") == ("%", pattern)


@pytest.mark.parametrize("kind", ["topic", "regex"])
def test_a_pattern_has_at_most_255_bytes(session: Session, kind: str) -> None:
    compiled(session, "x" * 255, kind)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="256 bytes, and may have 255"):
        compiled(session, "ä" * 128, kind)


def test_an_unknown_kind_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='"fanout"'):
        compiled(session, "#", "fanout")


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(a|a)*$",
        "^((a*)*)*$",
        "(a?){50}a{50}$",
        "(.*a.{20}){3}$",
        "(a|b)*a(a|b){50}c",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "(?!.*[a-f].?[0-9]z)" * 9,
        "^" + "(.*)" * 62 + "x",
        "(?=.*[a-f].{5}[0-9])" * 9,
        "(.{0,30}a){10}",
        r"^(\w+\.?)*!",
        "#." * 3 + "x",
    ],
)
def test_a_pattern_that_hangs_other_engines_matches_fast(session: Session, pattern: str) -> None:
    kind = "topic" if pattern.startswith("#") else "regex"
    _, regex = compiled(session, pattern, kind)
    session.rows("set local statement_timeout = '2s'")
    for key in MAX_KEYS:
        session.rows(f"select ({key}) ~ %s", [regex])


def test_the_longest_topics_match_fast(session: Session) -> None:
    session.rows("set local statement_timeout = '2s'")
    for pattern in ("#." * 127 + "x", "*.#." * 63 + "a"):
        likeness, regex = compiled(session, pattern)
        for key in MAX_KEYS:
            session.rows(f"select ({key}) like %s and ({key}) ~ %s", [likeness, regex])
