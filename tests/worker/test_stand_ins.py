"""Tracers and pools put an object of their own before psycopg's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import wrapt
from django.db import connections

from tests.support.site import jobs, slow
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses
from tests.worker.leaving_state import leave, leave_on, look, look_on

if TYPE_CHECKING:
    import psycopg

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.tasks import PgQueueTask
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session


class Lent:
    """As what SQLAlchemy's pools lend, for example to django-db-connection-pool."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        vars(self)["session"] = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.session, name, value)


@pytest.fixture(params=[wrapt.ObjectProxy, Lent], ids=["tracer", "pool"], autouse=True)
def stand_in(request: pytest.FixtureRequest, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots connect to one.  A tracer's, such as Datadog's, has the connection's class, and is of another type."""
    wrapper = type(connections["default"])
    connect = wrapper.get_new_connection
    monkeypatch.setattr(wrapper, "get_new_connection", lambda self, params: request.param(connect(self, params)))


@pytest.mark.parametrize("task", [jobs.write, jobs.write_async], ids=["sync", "async"])
def test_jobs_run(consume: Consume, effects: Effects, task: AnyTask) -> None:
    consume(threads=1)
    assert [statuses(ended(task.enqueue(word))) for word in ("first", "second")] == [["succeeded"], ["succeeded"]]
    assert effects() == ["first", "second"]


@pytest.mark.parametrize("tasks", [(leave, look), (leave_on, look_on)], ids=["sync", "async"])
def test_state_of_a_job_does_not_reach_the_next_one(
    consume: Consume, rows: str, tasks: tuple[AnyTask, AnyTask]
) -> None:
    leaver, looker = tasks
    consume(threads=1)
    before = ended(looker.enqueue()).return_value
    for name in ("statement_timeout", "advisory lock", "rows of the driver"):
        assert statuses(ended(leaver.enqueue(name))) == ["succeeded"]
        assert ended(looker.enqueue()).return_value == before, name


@pytest.mark.parametrize(("task", "args"), [(slow.lock_and_sleep, ["PostgreSQL"]), (slow.lock_async, [])])
@pytest.mark.usefixtures("effects")
def test_what_goes_on_after_its_time_is_ended(
    consume: Consume, session: Session, task: PgQueueTask[..., Any], args: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    session.rows("insert into feature_effect (word) values ('free')")
    consume()
    session.rows("begin")
    session.rows("update feature_effect set word = 'theirs'")
    result = task.using(max_attempts=50).enqueue(*args)
    wait_until(lambda: f"cut id={result.id}" in caplog.text, "an attempt that had connected was cut")
    session.rows("rollback")
    assert ended(result).status == "SUCCESSFUL"
