"""An edit is asked for in Python or on a terminal, and a worker does it beside its jobs."""

from __future__ import annotations

import datetime as dt
import os
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from django_pgqueue import functions
from django_pgqueue.control import count_edit, edit, edit_state, resume_edit, stop_edit
from django_pgqueue.exceptions import InvalidEdit
from django_pgqueue.models import Attempt, Message
from django_pgqueue.values.edit_filter import Filter
from tests.support.fixtures.admin import claim, send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session, Start

pytestmark = pytest.mark.django_db

LONG = 600.0
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def work() -> None:
    while functions.edit_step(connection) is not None:
        pass


def qedit(*arguments: str) -> list[str]:
    output = StringIO()
    call_command("qedit", *arguments, stdout=output)
    return output.getvalue().splitlines()


def interrupt(_seconds: float) -> None:
    raise KeyboardInterrupt


class TestControl:
    def test_an_edit_is_counted_asked_for_and_done(self) -> None:
        for queue in ("bulk", "bulk", "mail"):
            send(queue=queue)
        which = Filter(queue="bulk")
        assert count_edit("cancel", which) == (2, True)
        asked = edit("cancel", which, by="Ada")
        assert (edit_state(asked).done, edit_state(asked).fraction) == (0, 0.0)
        work()
        state = edit_state(asked)
        assert (state.done, state.fraction, state.asked_by, state.error) == (2, 1.0, "Ada", None)
        assert Message.objects.get().queue == "mail"

    def test_it_is_stopped_and_resumed(self) -> None:
        send()
        asked = edit("delete", Filter())
        assert stop_edit(asked, by="Ada")
        work()
        assert Message.objects.exists()
        assert resume_edit(asked)
        work()
        assert not Message.objects.exists()

    @pytest.mark.parametrize(
        ("action", "which", "how", "says"),
        [
            ("explode", Filter(), {}, "'explode' is no action"),
            ("cancel", Filter(finished_from=NOW), {}, "cancel cannot be filtered by finished_from"),
            ("enqueue_again", Filter(run_at_from=NOW), {}, "cannot be filtered by run_at_from"),
            ("cancel", Filter(status="failed"), {}, "status must be one of scheduled"),
            ("cancel", Filter(queue=""), {}, "queue must be a text of 1 to 500"),
            ("cancel", Filter(created_from=dt.datetime(2026, 1, 1)), {}, "a datetime with a time zone"),  # noqa: DTZ001
            ("cancel", Filter(priority_from=101), {}, "priority_from must be a whole number"),
            ("cancel", Filter(argument=float("nan")), {}, "argument must be a number that JSON has"),
            ("cancel", Filter(argument=[1]), {}, "argument must be a text, a number"),  # type: ignore[arg-type]
            ("cancel", Filter(raw=1), {}, "raw must be True or False"),  # type: ignore[arg-type]
            ("cancel", Filter(), {"priority": 1}, "cancel needs no parameter, and got priority"),
            ("move", Filter(), {}, "move needs queue, and got none"),
            ("postpone", Filter(), {"run_at": dt.datetime(2026, 1, 1)}, "run_at must be a datetime"),  # noqa: DTZ001
            ("prioritise", Filter(), {"priority": 101}, "priority must be a whole number"),
        ],
    )
    def test_what_no_edit_can_have_is_refused_before_any_sql(
        self, action: str, which: Filter, how: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(InvalidEdit, match=says):
            edit(action, which, **how)

    def test_an_unknown_edit_says_so(self) -> None:
        with pytest.raises(InvalidEdit, match="There is no edit 999"):
            edit_state(999)


class TestCommand:
    def test_it_counts_and_changes_nothing_without_yes(self) -> None:
        send(queue="bulk", task="shop.tasks.mail")
        assert qedit("--queue", "bulk", "--task", "shop.tasks.mail", "--cancel") == [
            "1 message matches now.",
            "Nothing was changed: --yes does it.",
        ]
        assert Message.objects.exists()

    def test_it_asks_for_the_edit_with_yes(self) -> None:
        send(priority=1)
        said = qedit("--argument", "7", "--cancel", "--yes", "--no-wait")
        assert said[0] == "0 messages match now."
        qedit("--prioritise", "9", "--yes", "--no-wait")
        qedit("--postpone", "PT2H", "--yes", "--no-wait")
        work()
        message = Message.objects.get()
        assert message.priority == 9
        assert message.dequeue_at > functions.now(connection) + dt.timedelta(hours=1)

    def test_it_shows_stops_and_resumes_an_edit(self) -> None:
        send()
        claim()
        asked = edit("cancel", Filter())
        assert qedit("--stop", str(asked)) == [f"Edit {asked} stopped 0%: 0 done."]
        with pytest.raises(CommandError, match="was stopped before"):
            qedit("--stop", str(asked))
        qedit("--resume", str(asked))
        with pytest.raises(CommandError, match=f"Edit {asked} cannot be resumed: it has ended, is not stopped, or"):
            qedit("--resume", str(asked))
        work()
        assert qedit("--show", str(asked)) == [f"Edit {asked} finished: 0 done, 1 asked to stop."]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--postpone", "soon"], "neither an ISO 8601 time nor a duration"),
            (["--cancel", "--status", "failed"], "status must be one of"),
            (["--show", "999"], "There is no edit 999"),
            (["--stop", "9" * 20], "There is no edit 9999"),
            (["--cancel", "--argument", "null"], "--argument null is no value to look for"),
            (["--cancel", "--created-until", ""], "created_until '' is neither an ISO 8601 time nor a duration"),
            (["--postpone", "P999999999D"], "neither an ISO 8601 time nor a duration"),
            (["--move", ""], "'' cannot be the name of a queue"),
            (["--prioritise", "101"], "priority must be a whole number from -100 to 100"),
        ],
    )
    def test_what_it_cannot_do_is_an_error(self, arguments: list[str], says: str) -> None:
        with pytest.raises(CommandError, match=says):
            qedit(*arguments)

    def test_a_login_that_may_not_is_told_so_in_a_sentence(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create role nobody; set local role nobody")
        says = r"The login of the database 'default' may not do this \(permission denied for table pgqueue_message\)\. "
        with pytest.raises(CommandError, match=says), transaction.atomic():
            qedit("--cancel")

    def test_a_user_without_a_name_and_one_who_does_not_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("os.getuid", lambda: 54_321)  # a container may run as a number that has no name
        monkeypatch.setattr("time.sleep", interrupt)
        asked, no_worker, goes_on = qedit("--cancel", "--yes")[1:]
        number = int(asked.split()[1].rstrip(":"))
        assert edit_state(number).asked_by == "user 54321 (qedit)"
        assert no_worker == "No worker runs: start manage.py qworker. Ctrl-C ends this wait, not the edit."
        assert goes_on == f"Edit {number} goes on. --stop {number} stops it."

    def test_a_user_whose_name_is_not_utf8(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOGNAME", os.fsdecode(b"a\xff"))
        asked = qedit("--cancel", "--yes", "--no-wait")[1]
        assert edit_state(int(asked.split()[1].rstrip(":"))).asked_by == r"a\udcff (qedit)"


@pytest.mark.slow
class TestWorker:
    def test_a_worker_that_rests_is_woken_and_does_it(self, consume: Consume) -> None:
        for _ in range(1500):
            send(queue="bulk")
        consumer = consume(queues=["mail"], idle_poll_seconds=LONG)
        wait_until(lambda: consumer.polling.rests, "it rests")
        asked = edit("cancel", Filter(queue="bulk"))
        wait_until(lambda: edit_state(asked).finished_at is not None, "the worker has done it")
        assert edit_state(asked).done == Attempt.objects.filter(status="cancelled").count() == 1500
        wait_until(lambda: consumer.polling.rests, "it rests again")

    def test_a_worker_that_is_killed_leaves_its_edit_to_another_one(self, start: Start, session: Session) -> None:
        session.rows(
            "insert into pgqueue_message (queue, dequeue_at, content) "
            "select 'bulk', 0, '{}' from generate_series(1, 10000)"
        )
        worker = start("--queues", "mail")
        asked = edit("cancel", Filter(queue="bulk"))
        wait_until(lambda: edit_state(asked).done, "the first step")
        worker.kill()
        start("--queues", "mail")
        wait_until(lambda: edit_state(asked).finished_at is not None, "another worker has done the rest")
        assert edit_state(asked).done == Attempt.objects.filter(status="cancelled").count() == 10_000
        assert not Message.objects.exists()
