"""Whatever stands on a command line is done or refused in words: no traceback."""

from __future__ import annotations

import contextlib
import logging
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import transaction
from hypothesis import example, given, strategies as st

from django_pgqueue.compat import TASKS_LOGGER
from tests.promises.security.fuzzing import fuzz
from tests.support.commands import all_actions

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db

LOOKS = {
    "qworker": ["--dry-run"],
    "qenqueue": [],
    "qbind": ["--dry-run"],
    "qstatus": ["--once"],
    "qimport": ["--from", "tasks-db", "--dry-run"],
    "qdoctor": ["--database", "default", "--json"],
}
"""What makes each of them end.  qpipeline starts Spark: its options are read, and no more."""
NOTHING = "tests.support.site.tasks.nothing"
WORDS = st.one_of(
    st.text(st.characters(codec=None, exclude_characters="\x00"), max_size=12),
    st.sampled_from(["", ",", "-1", "0", "1", "9" * 400, "nan", "inf", "1e999", "a,b", "\udcff", "default", "x" * 300]),
    st.sampled_from([NOTHING, "os.system", "[]", "{}", "[1e400]", '{"x": NaN}', "[" * 5_000]),
)
NOT_HERE = {"--settings", "--pythonpath", "--help", "-h", "--version", "--live", "--from", "--metrics-host"}
"""Django's own, what goes on until somebody stops it, and what opens files and ports."""


@pytest.fixture(scope="module", autouse=True)
def loggers() -> Iterator[None]:
    """Commands set up the log of their process, which is that of all tests here."""
    known = [logging.getLogger(name) for name in ("django_pgqueue", TASKS_LOGGER)]
    before = [(one, one.level, one.propagate, one.handlers[:], one.filters[:]) for one in known]
    yield
    for one, level, propagate, handlers, filters in before:
        one.setLevel(level)
        one.propagate, one.handlers, one.filters = propagate, handlers, filters


def flags(command: str) -> list[str]:
    parser = load_command_class("django_pgqueue", command).create_parser("manage.py", command)
    return sorted({flag for action in all_actions(parser) for flag in action.option_strings} - NOT_HERE)


def lines(command: str) -> st.SearchStrategy[list[str]]:
    pair = st.tuples(st.sampled_from(flags(command)), WORDS)
    some = st.one_of(pair.map(list), pair.map(lambda p: [f"{p[0]}={p[1]}"]), WORDS.map(lambda word: [word]))
    return st.lists(some, max_size=4).map(lambda parts: [word for part in parts for word in part])


@given(st.data())
@fuzz(few=40)
@pytest.mark.parametrize("command", [*LOOKS, "qpipeline"])
def test_any_arguments_are_parsed_or_refused(command: str, data: st.DataObject) -> None:
    parser = load_command_class("django_pgqueue", command).create_parser("manage.py", command)
    with contextlib.suppress(CommandError, SystemExit):
        parser.parse_args(data.draw(lines(command)))


@given(lines("qworker"))
@example(["--queues", "\udcff"])
@example(["--exclude-queues", "x" * 5000])
@example(["--lock-seconds", "nan"])
@fuzz(few=25)
def test_any_command_line_of_qworker_runs_or_is_refused(line: list[str]) -> None:
    done_or_refused("qworker", line)


@given(lines("qenqueue"))
@example([NOTHING, "--args", "[" * 100_000])
@example([NOTHING, "--kwargs", '{"\\ud800": 1}'])
@example(["\udcff.x"])
@fuzz(few=25)
def test_any_command_line_of_qenqueue_runs_or_is_refused(line: list[str]) -> None:
    done_or_refused("qenqueue", line)


@given(lines("qbind"))
@fuzz(few=15)
def test_any_command_line_of_qbind_runs_or_is_refused(line: list[str]) -> None:
    done_or_refused("qbind", line)


@given(lines("qstatus"))
@example(["--queue", "\udcff"])
@fuzz(few=15)
def test_any_command_line_of_qstatus_runs_or_is_refused(line: list[str]) -> None:
    done_or_refused("qstatus", line)


@given(lines("qimport"))
@example(["--database", "\udcff"])
@fuzz(few=15)
def test_any_command_line_of_qimport_runs_or_is_refused(line: list[str]) -> None:
    done_or_refused("qimport", line)


def done_or_refused(command: str, line: list[str]) -> None:
    with transaction.atomic():
        with contextlib.suppress(CommandError, SystemExit):
            call_command(command, *line, *LOOKS[command], "-v", "0", stdout=StringIO(), stderr=StringIO())
        transaction.set_rollback(True)
