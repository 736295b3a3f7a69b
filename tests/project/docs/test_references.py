"""Pages that list what is in the code list all of it, and nothing else."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.db import connection

from django_pgqueue import checks, exceptions
from django_pgqueue.backend import pgqueue
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.functions import sql_files
from django_pgqueue.monitoring.doctor import KINDS
from django_pgqueue.tasks import PgQueueTask
from tests.project.docs import sql_reference
from tests.support.commands import all_actions
from tests.support.pages import ROOT, section, text_of

if TYPE_CHECKING:
    from django.db.models import Model

ROW = re.compile(r"^\| `([^`]+)`", re.MULTILINE)


def test_the_sql_page_matches_the_files() -> None:
    page = text_of("sql")
    assert page == sql_reference.written(page), "Run: python -m tests.project.docs.sql_reference"


@pytest.mark.django_db
def test_the_sql_page_has_every_function_of_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select proname from pg_proc where proname like 'pgqueue%' and pronamespace = 'public'::regnamespace"
        )
        installed = [name for (name,) in cursor.fetchall()]
    documented = [
        function.name
        for name in sql_files.install_order()
        if f"<!-- sql: {name} -->" in text_of("reference/sql")
        for function in sql_reference.functions(sql_files.path(name))
    ]
    assert sorted(documented) == sorted(installed)
    assert re.findall(r"^### (.+)$", text_of("sql"), re.MULTILINE) == re.findall(r"<!-- sql: (\w+) -->", text_of("sql"))


@pytest.mark.parametrize("table", re.findall(r"^## (pgqueue_\w+)$", text_of("tables"), re.MULTILINE))
@pytest.mark.django_db
def test_the_tables_page_has_every_column_with_its_type(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select attname, format_type(atttypid, null), attnotnull from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and not attisdropped",
            [table],
        )
        columns = {name: (type_, not_null) for name, type_, not_null in cursor.fetchall()}
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section("tables", table), re.MULTILINE)
    documented = {name: (type_.removesuffix(", null"), not type_.endswith(", null")) for name, type_ in rows}
    short = {"timestamp with time zone": "timestamptz"}
    assert documented == {name: (short.get(type_, type_), not_null) for name, (type_, not_null) in columns.items()}


def test_the_settings_page_has_every_option_with_its_default() -> None:
    found = re.findall(r"^### (\w+)\n\nDefault: `(.+)`$", text_of("settings"), re.MULTILINE)
    defaults = Options()
    assert [name for name, _ in found] == Options.names()
    for name, default in found:
        assert eval(default) == getattr(defaults, name.lower()), name  # noqa: S307 -- our own page


def test_the_page_of_tasks_has_every_option_of_a_task() -> None:
    of_a_call = {"run_after", "after", "after_policy", "after_results", "run_in"}
    rows = re.findall(r"^\| (`.+?`) \| ", section("tasks", "Declare").partition("\n### ")[0], re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == {option.name for option in fields(PgQueueTask)} - of_a_call - {"func"}


def test_the_checks_page_has_every_check() -> None:
    texts = [inspect.getsource(module) for module in (checks, pgqueue)]
    in_code = set(re.findall(r"pgqueue\.[EW]\d{3}", "".join(texts)))
    assert set(ROW.findall(text_of("checks"))) == in_code


def test_the_errors_page_has_every_exception() -> None:
    ours = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, PgQueueError) and value.__module__ == exceptions.__name__
    }
    before, _, _ = text_of("errors").partition("\n## ")
    assert set(ROW.findall(before)) == ours


def test_the_terminal_page_has_every_finding_with_its_severity() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| .+ \| .+ \|$", section("terminal", "Findings"), re.MULTILINE)
    assert rows == [(name, str(KINDS[name].severity)) for name, _ in rows]
    assert sorted(name for name, _ in rows) == sorted(KINDS)


@pytest.mark.parametrize(
    ("command", "page", "title"),
    [
        ("qworker", "worker", "Options"),
        ("qedit", "control", "Edits"),
        ("qenqueue", "bulk", "From the command line"),
        ("qpipeline", "pipeline", "Options"),
        ("qbind", "routing", "Declare and bind"),
        ("qimport", "waiting-jobs", "Flags"),
        ("qstatus", "terminal", "qstatus"),
        ("qdoctor", "terminal", "qdoctor"),
        ("qworkers", "terminal", "qworkers"),
    ],
)
def test_a_page_has_every_flag_of_its_command(command: str, page: str, title: str) -> None:
    parser = load_command_class("django_pgqueue", command).create_parser("manage.py", command)
    everybodys = BaseCommand().create_parser("manage.py", "any")
    flags = {flag for action in all_actions(parser) for flag in action.option_strings}
    flags -= {flag for action in everybodys._actions for flag in action.option_strings}
    first_cells = re.findall(r"^\| (`-.*?) \|", section(page, title), re.MULTILINE)
    assert set(re.findall(r"`(--?[\w-]+)", " ".join(first_cells))) - {"-v"} == flags


def test_every_command_has_a_page() -> None:
    commands = {path.stem for path in (ROOT / "django_pgqueue" / "management" / "commands").glob("q*.py")}
    named = "qworker qworkers qedit qenqueue qpipeline qbind qimport qstatus qdoctor"
    assert commands == set(named.split())


def test_the_comparison_links_what_was_read_of_each_system() -> None:
    page = text_of("comparison")
    named = "Celery RQ Procrastinate django-tasks-db awa django-ox django-qraft django-absurd dj-queue PgQueuer DBOS"
    linked = " ".join(re.findall(r"\[([^\]]+)\]\(https://", page))
    missing = [name for name in [*named.split(), "Oban", "Dramatiq", "huey"] if name not in linked]
    assert missing == []


def test_the_comparison_does_not_advise_against_what_its_tables_have() -> None:
    """It once sent readers away for metrics, which its own table shows in bold."""
    _, _, advice = text_of("comparison").partition("Do not choose it today")
    rows = re.findall(r"^\| \*\*([^*|]+)\*\* \| ([^|]+) \|", text_of("comparison"), re.MULTILINE)
    have = [name for name, here in rows if not here.startswith(("no", "not", "none", "one process"))]
    assert [name for name in have if re.search(rf"\b{re.escape(name.lower())}\b", advice.lower())] == []


def test_every_model_has_a_table_on_the_page() -> None:
    from django.apps import apps

    models: list[type[Model]] = list(apps.get_app_config("django_pgqueue").get_models())
    for model in models:
        assert f"\n## {model._meta.db_table}\n" in text_of("tables")


# What the walk sets in bold besides buttons: links and pages of the admin.
LINKED = {"Orders", "Job queue → Finished attempts", "Exchanges → shop", "Workers", "Insights"}


def test_the_walk_names_the_buttons_of_the_shop() -> None:
    templates = (ROOT / "example_project" / "shop" / "templates" / "shop").glob("*.html")
    markup = "\n".join(template.read_text(encoding="utf-8") for template in templates)
    buttons = [text.strip() for text in re.findall(r"<button[^>]*>([^<]*)</button>", markup)]
    bold = set(re.findall(r"\*\*([^*]+)\*\*", text_of("walk")))
    assert bold >= LINKED
    for name in bold - LINKED:
        ending = name.removeprefix("… ")
        assert any(ending in button if ending != name else name == button for button in buttons), name


NAMED = re.compile(r"`(tests/[\w/]+\.py)?((?:::\w+)*)`")


def named_in(line: str) -> list[tuple[str, str]]:
    """Returns the files and names of the tests that a line names.  ``::name`` is in the file before it.

    >>> named_in("`tests/a.py::test_b`, `::TestC::test_d`")
    [('tests/a.py', '::test_b'), ('tests/a.py', '::TestC::test_d')]
    """
    found, file = [], ""
    for named, names in NAMED.findall(line):
        file = named or file
        if named or names:
            found.append((file, names))
    return found


@pytest.mark.parametrize("page", ["reliability", "security"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = [test for line in text_of(page).splitlines() for test in named_in(line)]
    assert len(named) > 30
    assert [test for test in named if not is_there(*test)] == []


def is_there(file: str, names: str) -> bool:
    path = ROOT / file
    if not file or not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return all(re.search(rf"^\s*(async def|def|class) {name}\b", text, re.MULTILINE) for name in names.split("::")[1:])


def test_bold_in_the_comparison_is_what_others_do_better() -> None:
    rows = re.findall(r"^\| \*\*.+$", text_of("comparison").partition("\n## Further systems")[0], re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in rows if "**" in row.split(" | ")[1]] == []
