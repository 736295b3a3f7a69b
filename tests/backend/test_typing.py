"""Tasks in the eyes of a type checker: the arguments and results are those of the function.

mypy comes with the dependency group ``lint``, which tests/ci.py installs for the newest Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Beside mypy's own: the first run reads all of Django's stubs, the next ones are quick.
CACHE = ROOT / ".mypy_cache" / "test_typing"

# A comment "# E: code" names the errors that mypy must find in its line.  It must find no others.
TASKS = """
from datetime import timedelta
from typing import Any, assert_type

from django_pgqueue.durable import DurableContext
from django_pgqueue.tasks import PgQueueContext, batch, task


@task
def send_receipt(order_pk: int, *, language: str = "en") -> str:
    return f"{order_pk} {language}"


@task(queue_name="mail", max_attempts=5)
def send_reminder(order_pk: int) -> bool:
    return order_pk > 0


@task
async def price(order_pk: int) -> float:
    return order_pk * 1.1


@task(takes_context=True)
def count(context: PgQueueContext, limit: int) -> list[int]:
    context.progress(0.5)
    return [limit]


@task(takes_context=True, atomic=False)
async def count_slowly(context: PgQueueContext, limit: int) -> list[int]:
    return [limit]


def reserve(order_pk: int) -> str:
    return f"{order_pk}"


async def ask(order_pk: int) -> float:
    return order_pk * 1.1


@task(durable=True)
def fulfil(context: DurableContext, order_pk: int) -> str:
    @context.step("charge")
    def charge() -> int:
        return order_pk

    assert_type(charge, int)
    assert_type(context.wait_for_event("paid"), Any)
    assert_type(context.call(count, 3), list[int])
    context.enqueue(price, "x")  # E: arg-type
    context.call(count)  # E: call-arg
    return context.step("reserve", reserve, order_pk, atomic=True)


@task(durable=True)
async def fulfil_slowly(context: DurableContext, order_pk: int) -> str:
    assert_type(await context.astep("ask", ask, order_pk), float)
    assert_type(await context.acall(price, order_pk), float)
    await context.aenqueue(price)  # E: call-arg
    return await context.astep("reserve", reserve, order_pk)


@task()
def untyped(order_pk):  # E: no-untyped-def
    return order_pk


def plain(order_pk: int) -> int:
    return order_pk


@task(takes_context=True)  # E: arg-type
def without_context() -> None: ...


declared = task(plain, max_attempts=2)


async def right() -> None:
    assert_type(send_receipt.enqueue(1).return_value, str)
    assert_type(send_receipt.enqueue(1, language="de").return_value, str)
    assert_type(send_receipt.get_result("1").return_value, str)
    assert_type((await send_receipt.aenqueue(order_pk=1)).return_value, str)
    assert_type(send_reminder.enqueue(1).return_value, bool)
    assert_type(send_reminder.using(run_after=timedelta(hours=1), priority=5).enqueue(1).return_value, bool)
    assert_type(price.enqueue(1).return_value, float)
    assert_type(count.enqueue(3).return_value, list[int])
    assert_type(count_slowly.using(max_attempts=3, max_lost=2).enqueue(limit=3).return_value, list[int])
    assert_type(declared.enqueue(1).return_value, int)
    send_reminder.using(after=[send_receipt.enqueue(1), price.enqueue(1)]).enqueue(1)
    untyped.enqueue(1)
    assert_type(fulfil.enqueue(1).return_value, str)
    assert_type(fulfil_slowly.enqueue(1).return_value, str)
    with batch() as jobs:
        assert_type(jobs.enqueue(price, 1).return_value, float)
        jobs.enqueue(price, "1")  # E: arg-type


async def wrong(context: PgQueueContext) -> None:
    send_receipt.enqueue("x", wrong=1)  # E: arg-type, call-arg
    send_receipt.enqueue()  # E: call-arg
    send_receipt.enqueue(1, language=2)  # E: arg-type
    await send_receipt.aenqueue("1")  # E: arg-type
    send_reminder.enqueue(1, 2)  # E: call-arg
    send_reminder.using(queue_name="urgent").enqueue("1")  # E: arg-type
    send_reminder.using(priority="high")  # E: arg-type
    send_reminder.using(priorty=1)  # E: call-arg
    price.enqueue("1")  # E: arg-type
    count.enqueue(context, 3)  # E: call-arg, arg-type
    count_slowly.enqueue("3")  # E: arg-type
    declared.enqueue("1")  # E: arg-type
    untyped.enqueue(1, 2)  # E: call-arg
    total: int = send_receipt.get_result("1").return_value  # E: assignment
"""

FOUND = re.compile(r"^[^:]+:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)
WANTED = re.compile(r"# E: (.+)$")


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("mypy") is None or find_spec("mypy_django_plugin") is None,
    reason="needs mypy and django-stubs: python -m pip install --group lint -e .",
)
def test_mypy_finds_wrong_arguments_of_tasks_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "typed_tasks.py").write_text(TASKS)
    assert errors_of_mypy(tmp_path / "typed_tasks.py") == errors_named_in_comments(TASKS)


def errors_of_mypy(path: Path) -> dict[int, list[str]]:
    """Line -> codes, with the settings of this project."""
    flags = ["--config-file", "pyproject.toml", "--cache-dir", str(CACHE), "--no-pretty", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *flags, str(path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found: dict[int, list[str]] = {}
    for line, code in FOUND.findall(ended.stdout):
        found.setdefault(int(line), []).append(code)
    return {line: sorted(codes) for line, codes in sorted(found.items())}


def errors_named_in_comments(text: str) -> dict[int, list[str]]:
    wanted = {number: WANTED.search(line) for number, line in enumerate(text.splitlines(), start=1)}
    return {number: sorted(found[1].split(", ")) for number, found in wanted.items() if found}
