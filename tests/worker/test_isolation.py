"""What one job leaves behind does not reach the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worker.tasks import (
    SPOILERS,
    count_queries,
    remember,
    remember_on,
    spoil,
    spoil_on,
    write_row,
    write_row_on,
)
from tests.worker.watching import ended

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from tests.worker.conftest import Session, Start
    from tests.worker.diary import Diary


@pytest.mark.parametrize("tasks", [(spoil, write_row), (spoil_on, write_row_on)], ids=["thread", "async"])
def test_a_spoilt_connection_does_not_harm_the_next_job(
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
    assert worker.output.count("left a transaction open: it is rolled back") >= 3
    assert worker.stop() == 0


def test_context_variables_are_each_jobs_own(start: Start) -> None:
    start("--threads", "1")
    results = [task.enqueue(f"{n}") for n in range(3) for task in (remember, remember_on)]
    assert {tuple(ended(result).return_value) for result in results} == {("nobody's", "en-us")}


def test_debug_does_not_keep_the_queries_of_all_jobs(start: Start) -> None:
    start("--threads", "1", "--noreload", PGQUEUE_TEST_DEBUG="1")
    assert [ended(count_queries.enqueue()).return_value for _ in range(3)] == [0, 0, 0]
