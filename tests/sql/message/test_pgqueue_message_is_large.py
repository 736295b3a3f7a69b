"""Which values are worth a look at their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_small_values_and_nulls_are_not_large(session: Session) -> None:
    assert session.one("""select pgqueue_message_is_large('{"args": [1], "kwargs": {}}')""") is False
    assert session.one("select pgqueue_message_is_large(null)") is not True
    assert session.one("select pgqueue_message_is_large(to_jsonb(repeat('x', 2000)))") is True


def test_no_value_that_is_small_has_a_text_beyond_the_limit(session: Session) -> None:
    grows = f"[{'1e131071,' * 123}1]"
    assert session.one("select pg_column_size(%s::jsonb)", [grows]) == 1988
    assert session.one("select octet_length(%s::jsonb::text)", [grows]) < 16_777_216


def test_compressed_values_count_as_large(session: Session) -> None:
    session.rows("create temporary table stock as select to_jsonb(repeat('x', 9000)) as content")
    assert session.rows(
        "select pg_column_size(content) < 1000 as is_short, pgqueue_message_is_large(content) from stock"
    ) == [(True, True)]


def test_the_planner_inlines_the_function(session: Session) -> None:
    plan = session.column("explain (verbose) select pgqueue_message_is_large(m.content) from pgqueue_message m")
    assert "pg_column_size(content) > 2000" in "\n".join(plan)
    assert "pgqueue_message_is_large" not in "\n".join(plan)
