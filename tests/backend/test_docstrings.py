"""Examples in docstrings are run."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
from typing import TYPE_CHECKING

import pytest

import django_pgqueue
from django_pgqueue.exceptions import PgQueueError

if TYPE_CHECKING:
    from types import ModuleType

SKIPPED = ("django_pgqueue.migrations",)
NAMES = [
    module.name
    for module in pkgutil.walk_packages(django_pgqueue.__path__, "django_pgqueue.")
    if not module.name.startswith(SKIPPED)
]
WITHOUT_SPARK = [name for name in NAMES if not name.startswith("django_pgqueue.spark")]
NEEDS_SPARK = [
    pytest.mark.spark,
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs the extra spark"),
]
WITH_SPARK = [pytest.param(name, marks=NEEDS_SPARK) for name in NAMES if name not in WITHOUT_SPARK]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module, module.__name__) if test.examples]


@pytest.mark.django_db
@pytest.mark.parametrize("name", [*WITHOUT_SPARK, *WITH_SPARK])
def test_the_examples_of_a_module_pass(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples(importlib.import_module(name)):
        runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_there_are_examples_and_most_of_them_are_run() -> None:
    tests = [test for name in WITHOUT_SPARK for test in examples(importlib.import_module(name))]
    found = [example for test in tests for example in test.examples]
    run = [example for example in found if not example.options.get(doctest.SKIP)]
    assert len(run) >= 10


def test_an_error_without_a_docstring_says_its_name() -> None:
    """A subclass of a project's, and each of ours under ``python -OO``."""
    bare = type("NotToday", (PgQueueError,), {})
    assert [str(bare()), str(bare("why")), str(PgQueueError())] == ["NotToday", "why", PgQueueError.__doc__]
