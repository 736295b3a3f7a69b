"""What one job leaves behind does not reach the next one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue.worker.run.session_reset import ATTRIBUTES
from tests.support.site.tasks import (
    SPOILERS,
    count_queries,
    hold_on,
    remember,
    remember_on,
    spoil,
    spoil_on,
    write_row,
    write_row_on,
)
from tests.support.watching import ended, started
from tests.worker.leaving_state import LEAVERS, OF_THE_DRIVER, leave, leave_on, look, look_on, settable

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


@pytest.mark.parametrize("tasks", [(spoil, write_row), (spoil_on, write_row_on)], ids=["thread", "async"])
def test_a_broken_connection_does_not_affect_the_next_job(
    start: Start, session: Session, diary: Diary, tasks: tuple[AnyTask, AnyTask]
) -> None:
    spoiler, writer = tasks
    worker = start("--threads", "1")
    for how in SPOILERS:
        ended(spoiler.enqueue(how))
        after = ended(writer.enqueue(f"after {how}"))
        assert after.status == "SUCCESSFUL", f"{how}: {after.errors}"
    assert session.rows("select word from worker_row") == [(f"after {how}",) for how in SPOILERS]
    assert diary.words() == []
    assert worker.output.count("left a transaction open: the worker rolls it back") >= 3
    assert worker.stop() == 0


def test_context_variables_are_each_jobs_own(start: Start) -> None:
    start("--threads", "1", "-v", "0", ready=False)
    results = [task.enqueue(f"{n}") for n in range(3) for task in (remember, remember_on)]
    assert {tuple(ended(result).return_value) for result in results} == {("nobody's", "en-us", 28)}


def test_debug_does_not_keep_the_queries_of_all_jobs(start: Start) -> None:
    start("--threads", "1", "--noreload", PGQUEUE_TEST_DEBUG="1")
    assert [ended(count_queries.enqueue()).return_value for _ in range(3)] == [0, 0, 0]


POOL = {"pool": {"min_size": 1, "max_size": 1}}
OPTIONS = {"options": "-c search_path=public,pg_temp -c statement_timeout=12345 -c shop.tenant=main"}
ON_CONNECT = "set role pg_monitor; set search_path = public; set shop.tenant = 'it''s'"
STATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "options": {"PGQUEUE_TEST_DATABASE_OPTIONS": json.dumps(OPTIONS)},
    "receiver": {"PGQUEUE_TEST_ON_CONNECT": ON_CONNECT},
    "pool and receiver": {"PGQUEUE_TEST_DATABASE_OPTIONS": json.dumps(POOL), "PGQUEUE_TEST_ON_CONNECT": ON_CONNECT},
}


@pytest.mark.parametrize("how", STATES)
def test_session_state_of_a_job_does_not_reach_the_next_one(start: Start, session: Session, how: str) -> None:
    """Of Django's connection as it is after connecting, whatever has been set then; and mostly on the same session."""
    if "pool" in how:
        pytest.importorskip("psycopg_pool")
    session.rows("grant select on worker_row to pg_monitor")
    start("--threads", "1", "-v", "0", ready=False, **STATES[how])
    before, server = ended(look.enqueue()).return_value
    servers = {server}
    for name in LEAVERS:
        ended(leave.enqueue(name))
        after, server = ended(look.enqueue()).return_value
        assert after == before, name
        servers.add(server)
    assert len(servers) <= 4, "only what was closed, or left in a transaction, is another one"


def test_session_state_of_an_async_job_does_not_reach_the_next_one(start: Start, rows: str) -> None:
    start("--threads", "1", "-v", "0", ready=False)
    before, _ = ended(look_on.enqueue()).return_value
    for name in LEAVERS:
        ended(leave_on.enqueue(name))
        after, _ = ended(look_on.enqueue()).return_value
        assert after == before, name


@pytest.mark.parametrize("how", ["thread", "async", "async beside another", "pooled"])
def test_driver_settings_of_a_job_lose_no_write_of_the_next_one(
    start: Start, session: Session, diary: Diary, rows: str, how: str
) -> None:
    """Another session sees the write: the session that wrote it does so in any case."""
    leaver, writer = (leave_on, write_row_on) if "async" in how else (leave, write_row)
    threads = "2" if "beside" in how else "1"
    start("--threads", threads, "-v", "0", ready=False, options={"LISTEN": how != "pooled"})
    if how == "async beside another":
        hold_on.enqueue("other")
        started(diary, "other")
    for name in OF_THE_DRIVER:
        ended(writer.enqueue("before"))
        assert ended(leaver.enqueue(name)).status == "SUCCESSFUL", name
        assert ended(writer.enqueue(name)).status == "SUCCESSFUL", name
        assert session.rows("select count(*) from worker_row where word = %s", name) == [(1,)], name
    diary.allow("other-1")


def test_every_settable_attribute_of_the_driver_is_reset(transactional_db: None) -> None:
    """A new attribute of psycopg's may lose the writes of the next job, too."""
    connection.ensure_connection()
    assert settable(connection.connection) == set(ATTRIBUTES)


def test_statements_that_psycopg_has_prepared_are_kept(start: Start) -> None:
    """With prepare_threshold in OPTIONS, as one that psycopg goes on using."""
    start("--threads", "1", "-v", "0", ready=False, PGQUEUE_TEST_DATABASE_OPTIONS='{"prepare_threshold": 0}')
    results = [task.enqueue(word) for word in "abc" for task in (write_row, remember)]
    assert {ended(result).status for result in results} == {"SUCCESSFUL"}


def test_behind_a_transaction_pooler_no_session_state_is_reset(start: Start) -> None:
    start("--threads", "1", "-v", "0", ready=False, options={"LISTEN": False})
    before, server = ended(look.enqueue()).return_value
    ended(leave.enqueue("statement_timeout"))
    after, same = ended(look.enqueue()).return_value
    assert (after != before, same) == (True, server)
