"""Tasks of projects whose transactions have a higher isolation level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection

from django_pgqueue.tasks import task
from tests.support.site.jobs import at_once, write_effect
from tests.support.diary import Diary

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext


@task(atomic=True, takes_context=True)
def report_and_hold(context: TaskContext[Any, Any], word: str) -> str:
    """Says how far it is, writes, and waits until the test allows the end.  Returns its isolation level."""
    context.progress(0.5, "halfway")  # type: ignore[attr-defined]
    write_effect(word)
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
    context.progress(0.9, "nearly there")  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute("show transaction_isolation")
        [level] = cursor.fetchone()
    return str(level)


@task(atomic=True, takes_context=True)
def change_what_it_has_seen(context: TaskContext[Any, Any], words: list[str]) -> list[str]:
    """Reads a row, waits, and changes it.  It also changes its argument."""
    diary = Diary.of_this_process()
    with connection.cursor() as cursor:
        cursor.execute("select word from feature_effect where word like 'seen%%'")
        cursor.fetchall()
        diary.write("saw", attempt=context.attempt)
        diary.wait_for("saw")
        cursor.execute("update feature_effect set word = word || '!' where word like 'seen%%'")
    words.append("more")
    return words


@task(atomic=True, backoff=at_once)
def raise_in_the_database(word: str, code: str, times: int) -> int:
    """Fails so often with this SQLSTATE.  Returns how often it has begun."""
    diary = Diary.of_this_process()
    diary.write(word)
    write_effect(word)
    begun = len(diary.entries(word))
    if begun <= times:
        with connection.cursor() as cursor:
            cursor.execute(f"do $$ begin raise exception using errcode = '{code}', message = 'they met'; end $$")
    return begun


@task(atomic=True, takes_context=True, timeout=0.5)
def hold_with_a_timeout(context: TaskContext[Any, Any], word: str) -> None:
    write_effect(word)
    diary = Diary.of_this_process()
    diary.write(word, attempt=context.attempt)
    diary.wait_for(f"{word}-{context.attempt}")
