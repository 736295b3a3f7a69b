"""Every name that the documentation promises can be imported from where it says, and from where it was before."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest

from tests.support.pages import FOLDER, PAGES
from tests.support.promised import PROMISED, SPARK

NOT_PROMISED = {"django_pgqueue.worker.upkeep.scheduler.Scheduler"}
"""Imports of the hidden checks of a page, which no reader sees."""
MOVED = {
    "django_pgqueue.bulk": "django_pgqueue.backend",
    "django_pgqueue.dependencies": "django_pgqueue.tasks",
    "django_pgqueue.recurrence": "django_pgqueue.tasks",
    "django_pgqueue.retry": "django_pgqueue.tasks",
}
IMPORT = re.compile(r"^from (django_pgqueue[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.mark.parametrize("module", PROMISED)
def test_a_promised_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in PROMISED[module] if not hasattr(found, name)] == []


@pytest.mark.spark
@pytest.mark.parametrize("module", SPARK)
def test_a_promised_name_of_spark_exists(module: str) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    assert [name for name in SPARK[module] if not has(module, name)] == []


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_exports_the_same_object(old: str) -> None:
    before, now = importlib.import_module(old), importlib.import_module(MOVED[old])
    for name in PROMISED[old]:
        assert getattr(before, name) is getattr(now, name)


def test_names_that_packages_export_are_promised() -> None:
    for module, names in PROMISED.items():
        assert set(getattr(importlib.import_module(module), "__all__", names)) >= set(names), module
        if module in (
            "django_pgqueue.models",
            "django_pgqueue.routing",
            "django_pgqueue.tasks",
            "django_pgqueue.testing",
        ):
            assert sorted(importlib.import_module(module).__all__) == sorted(names), module


def test_names_that_pages_import_are_promised() -> None:
    promised = {f"{module}.{name}" for module, names in {**PROMISED, **SPARK}.items() for name in names}
    modules = {*PROMISED, *SPARK}
    imported = {
        f"{module}.{name.strip()}"
        for page in PAGES
        for module, names in IMPORT.findall(page.read_text())
        for name in names.split(",")
    }
    assert imported - promised - modules == NOT_PROMISED


def test_pages_teach_the_new_paths() -> None:
    old = re.compile(r"\b(" + "|".join(map(re.escape, MOVED)) + r")\b")
    listing = {FOLDER / "about" / "changelog.md", FOLDER / "reference" / "api.md"}
    pages = [page for page in PAGES if page not in listing]
    assert [page for page in pages if old.search(page.read_text())] == []


def has(module: str, name: str) -> bool:
    """Returns whether a module has a name, or a package a module of that name."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None
