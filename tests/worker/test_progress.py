"""How far a job is, for those who watch."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.models import Message
from django_pgqueue.testing import drain
from django_pgqueue.worker.claim import held
from django_pgqueue.worker.claim.held import ProgressReports
from django_pgqueue.worker.run.progress import SharedReports
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db


def shown() -> Any:
    """What the only message says of itself."""
    return Message.objects.values_list("progress", flat=True).first()


def written(result: AnyTaskResult) -> Any:
    """Waits until the job has been heard, while it runs, and answers what it says."""
    wait_until(lambda: shown() or statuses(result), "it is written")
    assert statuses(result) == []
    return shown()


class TestSaying:
    @pytest.mark.parametrize(
        "expression", ["-0.01", "1.01", "float('nan')", "float('inf')", "-float('inf')", "100", "10**400"]
    )
    def test_a_fraction_out_of_range_is_named_in_the_error(self, expression: str) -> None:
        result = jobs.say_fraction.enqueue(expression)
        drain()
        result.refresh()
        assert statuses(result) == ["failed"]
        [error] = result.errors
        assert error.exception_class_path == "builtins.ValueError"
        assert "is not between 0 and 1." in error.traceback

    @pytest.mark.parametrize("expression", ["'half'", "None", "[0.5]", "1j"])
    def test_a_fraction_that_is_no_number_is_an_error(self, expression: str) -> None:
        result = jobs.say_fraction.enqueue(expression)
        drain()
        result.refresh()
        assert result.errors[0].exception_class_path in ("builtins.TypeError", "builtins.ValueError")

    @pytest.mark.parametrize("expression", ["0", "1", "0.5", "1e-300", "True", "0.0, ''", "1, 'é 🍵'"])
    def test_a_fraction_from_0_to_1_is_no_error(self, expression: str) -> None:
        jobs.say_fraction.enqueue(expression.partition(",")[0])
        assert [result.status for result in drain()] == ["SUCCESSFUL"]

    @pytest.mark.parametrize("text", ["a\x00b", "\ud800"], ids=repr)
    def test_text_that_cannot_be_stored_is_an_error_of_the_task(self, diary: Diary, text: str) -> None:
        diary.allow("end")
        result = jobs.say_expression.enqueue(repr(text))
        drain()
        result.refresh()
        assert result.errors[0].exception_class_path == "django_pgqueue.exceptions.InvalidContent"

    def test_in_drain_progress_is_written_at_once_and_gone_at_the_end(self) -> None:
        seen = []

        def see(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
            answer = execute(sql, params, *rest)
            if "pgqueue_message_progress" in sql:
                seen.append(json.loads(params[3]))
            return answer

        result = jobs.say_fraction.enqueue("0.5")
        with connection.execute_wrapper(see):
            drain()
        assert seen == [{"fraction": 0.5, "text": ""}]
        assert statuses(result) == ["succeeded"]


@pytest.mark.django_db(transaction=True)
class TestInAWorker:
    def test_the_row_has_the_last_progress_while_the_task_runs(self, consume: Consume, diary: Diary) -> None:
        result = jobs.say.enqueue([0.1, "page 1"], [0.4, "page 4 é🍵"])
        consume()
        assert written(result) == {"fraction": 0.4, "text": "page 4 é🍵"}
        diary.allow("end")
        assert statuses(ended(result)) == ["succeeded"]

    def test_several_running_tasks_show_their_progress(self, consume: Consume, diary: Diary) -> None:
        for n in range(2):
            jobs.say.enqueue([n / 10, f"number {n}"])
        consume()
        progress = Message.objects.exclude(progress__isnull=True).order_by("id")
        wait_until(lambda: progress.count() == 2, "both are written")
        assert [message.progress for message in progress] == [
            {"fraction": 0.0, "text": "number 0"},
            {"fraction": 0.1, "text": "number 1"},
        ]
        diary.allow("end")

    def test_of_thousands_of_reports_the_last_one_is_written_now_and_then(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs.follow.enqueue()
        [message] = functions.message_dequeue(session.connection, worker="w1", tasks=True)
        written: list[str] = []
        monkeypatch.setattr(functions, "message_progress", lambda _, __, progress: written.append(progress))
        monkeypatch.setattr(held, "time", SimpleNamespace(monotonic=lambda: 100.0))
        reports = SharedReports()
        writer = ProgressReports(reports)
        for number in range(3000):
            reports.progress(message, f"{number}")
        writer.do(lambda: cast("Any", SimpleNamespace(statements=session.connection)))
        assert written == ["2999"]
        assert writer.due_at() == float("inf")
        reports.progress(message, "3000")
        assert writer.due_at() == 100.0 + held.ATTEND_EVERY_SECONDS

    def test_the_next_attempt_begins_without_progress(self, consume: Consume, diary: Diary) -> None:
        result = jobs.say_and_fail.enqueue()
        consume()
        written(result)
        diary.allow("fail")
        wait_until(lambda: "again" in diary.words(), "the second attempt runs")
        assert shown() is None
        diary.allow("end")
        assert statuses(ended(result)) == ["retried", "succeeded"]

    def test_progress_of_a_lost_attempt_is_ignored(self, consume: Consume, diary: Diary, session: Session) -> None:
        result = jobs.say_when_allowed.enqueue()
        consume()
        wait_until(lambda: diary.words() == ["attempt 1"], "it runs")
        [[attempt, worker]] = session.rows("select attempt, worker from pgqueue_message")
        with session.connection.transaction():
            session.rows("update pgqueue_message set unlock_at = 0")
            session.rows("select pgqueue_message_expire()")
        wait_until(lambda: "attempt 2" in diary.words(), "the second attempt runs")
        diary.allow("say-1")
        wait_until(lambda: "said 1" in diary.words(), "the lost attempt has said something")
        diary.allow("say-2")
        wait_until(shown, "the second attempt is heard")
        assert shown() == {"fraction": 0.2, "text": "attempt 2"}
        assert attempt == 1
        assert worker
        diary.allow("end")
        assert statuses(ended(result)) == ["lost", "succeeded"]

    def test_async_and_atomic_tasks_may_report_progress(self, consume: Consume, diary: Diary) -> None:
        """An atomic one's own transaction is not committed yet."""
        results = [jobs.say_in_a_transaction.enqueue(), jobs.say_in_a_coroutine.enqueue()]
        consume()
        progress = Message.objects.exclude(progress__isnull=True).order_by("id")
        wait_until(lambda: progress.count() == 2, "both are written")
        texts = {progress["text"] for progress in progress.values_list("progress", flat=True) if progress}
        assert texts == {"in a transaction", "in a coroutine"}
        diary.allow("end")
        assert {ended(result).status for result in results} == {"SUCCESSFUL"}

    def test_progress_lost_with_the_connection_fails_no_job(self, consume: Consume, session: Session) -> None:
        result = jobs.say_something_often.enqueue(1.5)
        consume()
        written(result)
        session.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and query like '%%pgqueue_message%%' and pid <> pg_backend_pid() "
            "and application_name = '' and pid <> %s",
            connection.connection.info.backend_pid,
        )
        assert statuses(ended(result)) == ["succeeded"]

    def test_progress_does_not_change_a_message_of_another_worker(self, session: Session) -> None:
        jobs.follow.enqueue()
        [message] = functions.message_dequeue(session.connection, worker="w1", tasks=True)
        message.worker = "w2"
        assert functions.message_progress(session.connection, message, '{"fraction": 0.5, "text": ""}') is False
        assert shown() is None
