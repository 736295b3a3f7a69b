"""A value whose text is too large to be read back does not come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MAX_BYTES = 16_777_216
GROWS = f"[{'1e131071,' * 200}1]"
"""2.4 kB of jsonb with 26 MB of text."""
ITEM = "jsonb_build_object('content', %(content)s::jsonb, 'headers', %(headers)s::jsonb)"
TOO_LARGE = "has 2621[0-9]{4} bytes or more as text"


# pgqueue_message_readable: a value whose text is too large to be read back does not come in


@pytest.mark.parametrize("column", ["content", "headers"])
@pytest.mark.parametrize(
    "statement",
    [
        "select pgqueue_message_create(%(content)s, p_headers => %(headers)s)",
        "select pgqueue_message_create_unique('key', %(content)s, p_headers => %(headers)s)",
        "select pgqueue_message_create_after('{1}', %(content)s, p_headers => %(headers)s)",
        "select pgqueue_message_create_many(jsonb_build_array(%(content)s::jsonb), 'mail', p_headers => %(headers)s)",
        f"select pgqueue_message_create_many(jsonb_build_array({ITEM}))",
        f"""select pgqueue_message_create_many(jsonb_build_array({ITEM} || '{{"unique_key": "key"}}'))""",
        "select pgqueue_message_publish('orders', 'a.b', %(content)s, %(headers)s)",
    ],
)
def test_every_enqueue_function_refuses_unreadable_json(connect: Connect, statement: str, column: str) -> None:
    session = connect()
    session.rows("select pgqueue_exchange_declare('orders')")
    session.rows("select pgqueue_binding_declare('orders', 'mail', '#')")
    values = {"content": "{}", "headers": "{}"} | {column: GROWS}
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"{column} {TOO_LARGE}") as refusal:
        session.rows(statement, values)
    assert refusal.value.diag.message_hint == (
        f"It may have {MAX_BYTES}: store the data where it belongs and pass its key."
    )
    assert session.messages() == []


def test_a_compressed_value_of_a_table_is_checked(session: Session) -> None:
    session.rows("create temporary table stock as select %s::jsonb as content", [f"[{'1e131071,' * 4900}1]"])
    assert session.one("select pg_column_size(content) from stock") < 2000
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=r"content has 64[0-9]{7} bytes or more as text"):
        session.rows("select pgqueue_message_create(content) from stock")


def test_json_that_postgresql_cannot_print_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="content has 1073741824 bytes or more as text"):
        session.rows("select pgqueue_message_create(%s::jsonb)", [f"[{'1e131071,' * 9000}1]"])


def test_sixteen_megabytes_are_the_limit(session: Session) -> None:
    session.rows("select pgqueue_message_create(to_jsonb(repeat('x', %s)))", [MAX_BYTES - 2])
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"content has {MAX_BYTES + 1} bytes"):
        session.rows("select pgqueue_message_create(to_jsonb(repeat('x', %s)))", [MAX_BYTES - 1])


def test_a_schedule_refuses_unreadable_json(session: Session) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"content {TOO_LARGE}"):
        session.rows(
            "select pgqueue_schedule_declare('tea', 'x.y', 0, p_cron => '* * * * *', p_content => %s)", [GROWS]
        )


def test_results_state_and_progress_refuse_unreadable_json_and_keep_the_message(connect: Connect) -> None:
    session = connect()
    session.create()
    held = token(session.take())
    for function, parameter in (
        ("pgqueue_message_complete", "result"),
        ("pgqueue_message_defer", "state"),
        ("pgqueue_message_progress", "progress"),
    ):
        statement = f"select {function}(%(id)s, %(attempt)s, %(worker)s, p_{parameter} => %(value)s)"
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=f"{parameter} {TOO_LARGE}"):
            session.rows(statement, held | {"value": GROWS})
    assert session.value("pgqueue_message_complete", **held) is True


def test_the_text_of_an_error_is_cut(session: Session) -> None:
    session.create()
    held = token(session.take())
    session.rows(
        "select pgqueue_message_defer(%(id)s, %(attempt)s, %(worker)s, p_max_attempts => 2, p_error => "
        "jsonb_build_object('message', repeat('x', 2000000), 'traceback', repeat('y', 2000000))::text)",
        held,
    )
    assert session.rows(
        "select length(error_message) as message, length(traceback) as traceback from pgqueue_attempt"
    ) == [(1_000_000, 1_000_000)]
    assert session.one("select length(last_error) from pgqueue_message") == 1_000_000


def test_without_a_name_the_value_is_null(session: Session) -> None:
    assert session.rows("select pgqueue_message_readable('[1]') as one, pgqueue_message_readable(null) as two") == [
        ([1], None)
    ]
    assert session.one("select pgqueue_message_readable(%s) is null", [f"[{'1e131071,' * 600}1]"]) is True


# pgqueue_message_is_large: which values are worth a look at their text


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
