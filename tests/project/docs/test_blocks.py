"""Every block of the README and of the documentation is run."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from copy import copy
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import AppConfig
from django.test import override_settings

from django_pgqueue.checks import check_backends
from django_pgqueue.routing.declared import DECLARED
from django_pgqueue.tasks import registry
from example_project.shop import models as shop_models
from tests.support import commands
from tests.support.pages import FOLDER, PAGES, READ, ROOT, RUN, Block, blocks, name_of, pages_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.project.docs.conftest import Psql


def pages(found: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", found, ids=name_of)


@pages(PAGES)
def test_every_block_is_run_or_gives_the_reason(page: Path) -> None:
    for block in blocks(page):
        assert block.language in RUN | READ, f"{block} has the language {block.language!r}"
        assert block.not_run is None or block.not_run.strip(), f"{block} is not run and does not say why"
    indented = [number for number, line in enumerate(page.read_text().splitlines(), 1) if re.match(r"\s+```", line)]
    assert not indented, f"blocks inside of lists are not found by these tests: lines {indented}"


def test_the_examples_of_other_packages_are_python() -> None:
    for page in sorted((FOLDER / "move").glob("*.md")):
        for block in blocks(page):
            if block.not_run and block.language == "python":
                assert ast.parse(block.text, str(block)).body


DATABASE = ("db", "transactional_db", "pgqueue", "pgqueue_clock", "pgqueue_inline")


@pages(pages_with("python"))
def test_a_test_of_a_page_may_use_the_database(page: Path) -> None:
    """pytest-django refuses it to those that do not ask for it, and these tests call the functions themselves."""
    nodes = [node for block in blocks(page, "python") for node in ast.parse(block.text).body]
    if any(ast.unparse(node) == "pytestmark = pytest.mark.django_db" for node in nodes):
        return
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            asks = any(mark.startswith("pytest.mark.django_db") for mark in marks)
            assert asks or any(argument.arg in DATABASE for argument in node.args.args), node.name


COMMITS = {"guide/testing"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=pytest.mark.django_db(transaction=name_of(page) in COMMITS))
        for page in pages_with("python")
    ],
)
def test_the_python_of_a_page_runs(page: Path, project: Project) -> None:
    for block in blocks(page, "python"):
        project.run(block)


@pages(pages_with("sql"))
def test_the_sql_of_a_page_runs_in_psql(page: Path, queue: Psql) -> None:
    for block in blocks(page, "sql"):
        assert block.text.strip(), f"{block} is empty"
    # One session for the whole page: the worker's name that no call gives is that of the session.
    queue.run(script="\n".join(f"\\echo {block}\n{block.text}" for block in blocks(page, "sql")))


@pages(pages_with("sh"))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            found = commands.problem(line)
            assert found is None, f"{block}: {line}: {found}"


@pages(PAGES)
def test_the_management_commands_of_a_page_have_these_flags(page: Path) -> None:
    assert list(commands.manage_problems(page.read_text())) == []


class Project:
    """The reader's project: its files are modules, everything else runs in one namespace for the page."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.rest = self.module("docs_page")
        self.module("shop").__path__ = []
        self.monkeypatch.setitem(sys.modules, "shop.models", shop_models)

    def module(self, name: str) -> ModuleType:
        if name not in sys.modules:
            self.monkeypatch.setitem(sys.modules, name, ModuleType(name))
        return sys.modules[name]

    def run(self, block: Block) -> None:
        if block.module == "settings":
            self.settings(block)
        else:
            execute(block, vars(self.module(block.module) if block.module else self.rest))

    def settings(self, block: Block) -> None:
        """Settings cannot be changed here: they are read, and their apps and backends looked at."""
        found: dict[str, Any] = {"__name__": "settings", "INSTALLED_APPS": [], "os": os}
        execute(block, found)
        for app in found["INSTALLED_APPS"]:
            AppConfig.create(app)
        with override_settings(TASKS=found.get("TASKS", {})):
            assert check_backends(None) == []


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    registry.forget()
    for said in ("exchanges", "bindings", "subscriptions"):  # what a page declares ends with it
        monkeypatch.setattr(DECLARED, said, copy(getattr(DECLARED, said)))
    yield Project(monkeypatch)
    registry.forget()


def execute(block: Block, namespace: dict[str, Any]) -> None:
    """Runs a block, which may await; tracebacks show the line of the page."""
    text = "\n" * (block.line - 1) + block.text
    code = compile(text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    awaits = code.co_flags & inspect.CO_COROUTINE
    if not awaits:
        exec(code, namespace)  # noqa: S102 -- our own pages
        return

    async def run() -> None:
        await eval(code, namespace)  # noqa: S307

    async_to_sync(run)()


@pytest.fixture(scope="session")
def queue(psql: Psql) -> Psql:
    """The queue as psql installs it, and nothing else."""
    psql.run("--file", str(ROOT / "sql" / "install.sql"))
    return psql
