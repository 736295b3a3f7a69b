"""How the SQL is written, as far as the database and the files can tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.functions import sql_files as schema
from tests.support.databases import sql_files

if TYPE_CHECKING:
    from tests.support.sessions import Session

TABLES = (
    "pgqueue_message",
    "pgqueue_attempt",
    "pgqueue_worker",
    "pgqueue_queue",
    "pgqueue_schedule",
    "pgqueue_channel",
    "pgqueue_ended",
    "pgqueue_edit",
    "pgqueue_exchange",
    "pgqueue_ledger",
    "pgqueue_lake",
    "pgqueue_replayed",
    "pgqueue_report",
    "pgqueue_rollup",
    "pgqueue_step",
    "pgqueue_event",
)
FUNCTIONS = [name for name in schema.install_order() if name not in TABLES]
WITH_DYNAMIC_SQL = {
    "pgqueue_attempt_partition",
    "pgqueue_attempt_maintain",
    "pgqueue_attempt_drop",
    "pgqueue_step_partition",
    "pgqueue_step_maintain",
}
SPOKEN_KEYWORDS = r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|RETURNS|LANGUAGE|CREATE|FUNCTION|BEGIN|END|NULL|AND|OR)\b"


def functions(session: Session, name: str) -> list[Any]:
    return session.rows(
        """
        select p.proargnames as arguments, p.prosrc as body, l.lanname as language, p.proconfig as settings,
               p.prosecdef as with_rights_of_owner
        from pg_proc p join pg_language l on l.oid = p.prolang
        where p.proname = %s and p.pronamespace = 'public'::regnamespace
        """,
        [name],
    )


def without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text)


def test_every_function_of_the_database_has_a_file_of_its_name(session: Session) -> None:
    names = session.column("""
        select distinct proname::text from pg_proc
        where proname like 'pgqueue%' and pronamespace = 'public'::regnamespace
    """)
    assert sorted(names) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_test_module_or_a_heading_of_its_name(name: str) -> None:
    modules = list((Path(__file__).parent / schema.path(name).parent.name).glob("test_*.py"))
    has_a_heading = any(f"\n# {name}: " in path.read_text(encoding="utf-8") for path in modules)
    assert has_a_heading or f"test_{name}.py" in {path.name for path in modules}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_file_makes_one_function_and_nothing_else(name: str) -> None:
    made = re.findall(r"^create or replace function (\w+)", sql_files()[name], re.MULTILINE)
    assert set(made) == {name}
    others = re.findall(r"^\s*create\b(?! or replace trigger)", without_comments(sql_files()[name]), re.MULTILINE)
    assert len(others) == len(made), "besides the triggers that call it"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_documentation_opens_its_body(session: Session, name: str) -> None:
    for function in functions(session, name):
        first_line = function.body.strip().partition("\n")[0]
        assert re.match(r"-- [A-Z]", first_line) or first_line.startswith("-- pgqueue_"), first_line


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_and_variables_have_prefixes(session: Session, name: str) -> None:
    for function in functions(session, name):
        assert [argument for argument in function.arguments or [] if not argument.startswith("p_")] == []
        declared = re.search(r"\bdeclare\b(.*?)\bbegin\b", without_comments(function.body), re.DOTALL)
        variables = re.findall(r"^\s*(\w+)\s+\w", declared[1], re.MULTILINE) if declared else []
        assert [variable for variable in variables if not variable.startswith("v_")] == []
        assert function.language == "sql" or not declared or variables


@pytest.mark.parametrize("name", FUNCTIONS)
def test_statements_are_written_out_except_where_a_table_has_its_name_from_a_day(session: Session, name: str) -> None:
    for function in functions(session, name):
        dynamic = re.search(r"\bexecute\b", without_comments(function.body))
        assert bool(dynamic) == (name in WITH_DYNAMIC_SQL)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_finds_its_tables_with_any_search_path(session: Session, name: str) -> None:
    for function in functions(session, name):
        pinned = any(setting.startswith("search_path=") for setting in function.settings or [])
        others = re.findall(r"\bpgqueue_\w+", without_comments(function.body))
        assert pinned or not others, f"{others} depend on the search_path of the caller"


def test_every_time_is_one_that_clients_can_read(session: Session) -> None:
    unbound = session.column("""
        select format('%s.%s', c.relname, a.attname) from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.atttypid = 'timestamptz'::regtype
        where c.relname like 'pgqueue%' and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
          and not c.relispartition
          and not exists (select from pg_constraint t where t.conrelid = c.oid and t.contype = 'c'
                          and a.attnum = any (t.conkey) and pg_get_constraintdef(t.oid) ~ '9999-12-30')
        order by 1
    """)
    assert unbound == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_runs_with_the_rights_of_its_caller(session: Session, name: str) -> None:
    assert not any(function.with_rights_of_owner for function in functions(session, name))


@pytest.mark.parametrize("name", sorted(set(sql_files())))
def test_keywords_are_lower_case(name: str) -> None:
    text = re.sub(r"'[^']*'", "''", without_comments(sql_files()[name]))
    assert re.findall(SPOKEN_KEYWORDS, text) == []


def test_every_database_can_store_the_texts_and_reads_them_alike() -> None:
    """LATIN1 lacks characters of UTF8, and standard_conforming_strings decides what a backslash means."""
    files = sql_files()
    assert [name for name, text in files.items() if not text.isascii()] == []
    constants = [
        constant
        for name in FUNCTIONS
        for constant in re.findall(r"(?<![\w'])'(?:[^']|'')*'", without_comments(files[name]))
    ]
    assert [constant for constant in constants if "\\" in constant.replace("\\u", "")] == []


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.startswith("pgqueue_message_")])
def test_functions_that_query_the_queue_pin_their_plan(session: Session, name: str) -> None:
    """A plan that was made while the table was empty must be the one for a full table."""
    for function in functions(session, name):
        reads = re.search(r"\b(from|update|delete from) pgqueue_message m\b", without_comments(function.body))
        settings = set(function.settings or [])
        assert not reads or {"enable_seqscan=off", "enable_bitmapscan=off", "jit=off"} <= settings
