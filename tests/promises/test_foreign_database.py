"""The queue does its work in a database that somebody else has set up, with other settings and another encoding."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json
import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue import control
from django_pgqueue.backend.bulk import enqueue_many
from django_pgqueue.control import Filter
from django_pgqueue.durable import emit
from django_pgqueue.models import Attempt, Message, Schedule
from django_pgqueue.queue import Queue
from django_pgqueue.tasks import task
from tests.support.address import conninfo
from tests.support.databases import FOREIGN_SETTINGS, empty_database
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, sql, visitor_of
from tests.support.fixtures.consumers import consume, diary, effects, environment, rows, session, start
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import TaskContext
    from django_pgqueue.durable import DurableContext
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

__all__ = ["consume", "diary", "effects", "environment", "rows", "session", "start"]

pytestmark = [pytest.mark.slow, pytest.mark.once]

TEXTS = {
    **FOREIGN_SETTINGS,
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "repeatable read",
    "enable_indexscan": "off",
    "plan_cache_mode": "force_custom_plan",
    "quote_all_identifiers": "on",
    "search_path": "public, pg_catalog",
    "temp_file_limit": "0",
    "work_mem": "1MB",
}
PLANS = {
    "backslash_quote": "off",
    "client_encoding": "LATIN1",
    "client_min_messages": "debug1",
    "constraint_exclusion": "on",
    "cursor_tuple_fraction": "1",
    "debug_parallel_query": "on",
    "default_transaction_isolation": "serializable",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_nestloop": "off",
    "enable_partition_pruning": "off",
    "enable_sort": "off",
    "force_parallel_mode": "on",  # its name before PostgreSQL 16
    "from_collapse_limit": "1",
    "geqo_threshold": "2",
    "jit_above_cost": "0",
    "join_collapse_limit": "1",
    "lock_timeout": "5s",
    "min_parallel_index_scan_size": "0",
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "plan_cache_mode": "force_generic_plan",
    "plpgsql.variable_conflict": "use_column",
    "restrict_nonsystem_relation_kind": "view, foreign-table",
    "row_security": "off",
    "stats_fetch_consistency": "snapshot",
    "track_activities": "off",
    "work_mem": "64kB",
    "xmloption": "document",
}
SETTINGS = {"LATIN1": TEXTS, "SQL_ASCII": TEXTS, "UTF8": PLANS}
"""Of a database in each encoding."""
RARE = "\N{SNOWMAN}"
"""A character that LATIN1 does not have."""


@pytest.fixture
def foreign(session: Session, encoding: str) -> Iterator[None]:
    """Django's own connection, and those of a worker in this process, lead there."""
    known = connection.settings_dict
    own = known["NAME"]
    with empty_database(conninfo(), "foreign", encoding=encoding) as address:
        name = conninfo_to_dict(address)["dbname"]
        for setting, value in SETTINGS[encoding].items():
            if "." not in setting and session.value("select current_setting(%s, true) is null", setting):
                continue  # of another release of PostgreSQL
            values = ", ".join(f"'{one}'" for one in value.split(", "))
            session.rows(f"alter database {name} set {setting} = {values}")
        connection.close()
        known["NAME"] = name
        try:
            call_command("migrate", verbosity=0)
            # Not for the migrations, which think for longer than that on a machine with much else to do.
            session.rows(f"alter database {name} set idle_session_timeout = '3s'")
            connection.close()
            yield
        finally:
            connection.close()
            known["NAME"] = own


@task
def greet(name: str) -> str:
    return f"Grüß Gott, {name}"


@task(max_attempts=2, backoff=lambda *_: 0.0, takes_context=True)
def stumble(context: TaskContext[Any, Any], word: str) -> str:
    if context.attempt == 1:
        raise ValueError(f"{RARE} {word}")
    return word


@task
async def greet_async(name: str) -> str:
    await asyncio.sleep(0)
    return f"Hello, {name}"


@task(channel=lambda name: f"greet-{name}")
def greet_in_turn(name: str) -> str:
    return f"Servus, {name}"


@task(atomic=True)
def found_group(name: str) -> None:
    Group.objects.create(name=name)


@task
def answer_with_a_rare_character() -> str:
    return RARE


@task(durable=True)
def walk(context: DurableContext) -> list[Any]:
    steps = [context.step(name, greet.func, name) for name in ("Zoë", "Ian")]
    child = context.call(greet_in_turn, "Zoë")
    return [*steps, child, context.wait_for_event("arrived", timeout=dt.timedelta(hours=1))]


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF8"])
def test_a_queue_in_a_database_of_somebody_else_does_its_work(
    foreign: None, consume: Consume, caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    caplog.set_level(logging.WARNING, "django_pgqueue.worker")
    later = [greet.using(run_after=dt.timedelta(days=1)).enqueue(f"{n}") for n in range(3)]
    Schedule.objects.create(
        name="sæson", next_at=0, interval_ms=3_600_000, task=greet.module_path, content={"args": ["é"], "kwargs": {}}
    )
    consume(threads=2)
    greeted, stumbled, founded, walked, rare = (
        greet.enqueue("é"), stumble.enqueue("é"), found_group.enqueue("é"), walk.enqueue(),
        answer_with_a_rare_character.enqueue(),
    )  # fmt: skip
    assert ended(greeted).return_value == "Grüß Gott, é"
    assert ended(stumbled).return_value == "é"
    assert statuses(stumbled) == ["retried", "succeeded"]
    assert stumbled.errors[0].exception_class_path == "builtins.ValueError"
    ended(founded)
    assert Group.objects.get().name == "é"
    emit("arrived", {"who": "é"})
    assert ended(walked).return_value == ["Grüß Gott, Zoë", "Grüß Gott, Ian", "Servus, Zoë", {"who": "é"}]
    ended(rare)
    if encoding == "UTF8":
        assert rare.return_value == RARE
    else:
        assert statuses(rare) == ["failed"]
        assert "cannot store the end" in str(Attempt.objects.get(message_id=int(rare.id)).error_message)
    in_turn = [greet_in_turn.enqueue("é") for _ in range(3)]
    after = greet_async.using(after=in_turn).enqueue("é")
    assert ended(after).return_value == "Hello, é"
    assert enqueue_many(greet_async, [(f"{n}",) for n in range(20)]) == 20
    wait_until(lambda: Attempt.objects.filter(task=greet_async.module_path).count() == 21, "all of them have run")
    wait_until(lambda: Attempt.objects.filter(task=greet.module_path).count() == 2, "the schedule has run")
    Queue("warehouse").send({"item": "é"})
    [message] = Queue("warehouse").receive_many(2)
    assert message.content == {"item": "é"}
    if SETTINGS[encoding].get("array_nulls") != "off":  # with it off, a list with a null is refused
        message.complete()
    edit = control.edit("cancel", Filter(task_contains="GREET", argument=1))
    wait_until(lambda: control.edit_state(edit).finished_at, "the edit is done")
    assert control.edit_state(edit).done == 1
    assert statuses(later[1]) == ["cancelled"]
    quiet = {"succeeded", "retried", "refused", "failed"}
    assert [line for line in caplog.messages if line.partition(" ")[0] not in quiet] == []

    visitor = visitor_of(User.objects.create_superuser("root"))
    for page in (
        MESSAGES,
        WORKERS,
        f"{ATTEMPTS}?duration__range__gte=0",
        f"{ATTEMPTS}{Attempt.objects.latest('id').pk}/change/",
    ):
        visitor.open(page)
    assert "Nothing waits for your decision." in visitor.open(f"{MESSAGES}approvals/").root.text
    assert "ValueError promises/test_foreign_database.py, line" in visitor.open(f"{ATTEMPTS}errors/").root.text

    out = io.StringIO()
    call_command("qdoctor", "--json", "--fail-level", "never", stdout=out)
    found = {finding["name"] for finding in json.loads(out.getvalue())["findings"]}
    assert {name.partition("-")[0] for name in found} & {"changed", "could", "missing", "strayed", "unknown"} == set()

    sql("select pgqueue_attempt_partition('2020-01-01')")
    while sql("select pgqueue_attempt_maintain(0, 30)") != [(0,)]:
        pass
    assert sql("select to_regclass('pgqueue_attempt_20200101')") == [(None,)]


@pytest.mark.parametrize("encoding", ["SQL_ASCII"])
@pytest.mark.parametrize("column", ["queue", "content"])
def test_a_message_with_bytes_that_are_no_utf8_stops_no_other_one(foreign: None, consume: Consume, column: str) -> None:
    values = {"task": greet.module_path.encode(), "queue": b"default", "content": b'{"args": ["Ian"], "kwargs": {}}'}
    values[column] = values[column].replace(b"a", b"\xe9")
    with psycopg.connect(conninfo(connection.settings_dict["NAME"]), client_encoding="SQL_ASCII") as other:
        columns, texts = b"dequeue_at, priority, task, queue, content", b"', '".join(values.values())
        other.execute(b"insert into pgqueue_message (%s) values (0, 100, '%s')" % (columns, texts))
    visitor = visitor_of(User.objects.create_superuser("root"))
    pk = Message.objects.values_list("pk", flat=True).get()
    shown = [
        visitor.open(page).root.text
        for page in (MESSAGES, f"{MESSAGES}{pk}/change/", "/admin/django_pgqueue/overview/")
    ]
    shown.append(visitor.client.get(MESSAGES, {"download": "json"}).content.decode())
    assert [what for what in shown if "\N{REPLACEMENT CHARACTER}" not in what] == (
        [] if column == "queue" else [shown[0], shown[2], shown[3]]
    )
    out = io.StringIO()
    for command in (["qstatus"], ["qworkers"], ["qworker", "--dry-run"], ["qdoctor", "--fail-level", "never"]):
        call_command(*command, stdout=out)
    assert "could-not-look" not in out.getvalue()
    assert (column == "queue") == ("def\N{REPLACEMENT CHARACTER}ult" in out.getvalue())
    greeted = greet.enqueue("Zoë")
    consume(threads=2)
    assert ended(greeted).return_value == "Grüß Gott, Zoë"
    wait_until(lambda: not Message.objects.exists(), "all have ended")
    attempt = Attempt.objects.only("status").get(priority=100)
    assert attempt.status == "failed"
    for page in (ATTEMPTS, f"{ATTEMPTS}{attempt.pk}/change/", f"{ATTEMPTS}errors/"):
        visitor.open(page)


@pytest.mark.parametrize("encoding", ["SQL_ASCII"])
def test_letters_beyond_ascii_come_to_a_database_that_knows_no_encoding(foreign: None, encoding: str) -> None:
    """It refuses the escapes of JSON."""
    Schedule.objects.create(
        name="sæson", next_at=0, interval_ms=3_600_000, task=greet.module_path, content={"args": ["Ian"], "kwargs": {}}
    )
    sent = {control.run_schedule("sæson"), int(greet.enqueue("é").id)}
    assert {(row.content["args"][0], row.headers and row.headers["schedule"]) for row in Message.objects.all()} == {
        ("Ian", "sæson"),
        ("é", None),
    }
    visitor = visitor_of(User.objects.create_superuser("root"))
    assert set(visitor.open(MESSAGES).ids) == sent
    assert visitor.open(MESSAGES, argument="é").ids == [max(sent)]
    assert "Nothing waits for your decision." in visitor.open(f"{MESSAGES}approvals/").root.text
    assert control.count_edit("cancel", Filter(argument="é")).matches == 1
    assert control.edit_state(control.edit("move", Filter(argument="é"), queue="ü")).finished_at is None
