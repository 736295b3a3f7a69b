"""``assert_enqueued`` and ``assert_not_enqueued``: what they compare, and what they say."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test import TestCase

from django_pgqueue import functions
from django_pgqueue.backend import bulk
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.testing import (
    aassert_enqueued,
    aassert_not_enqueued,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    clock,
    drain,
)
from tests.support.site import shelf
from tests.support.site.shelf import note, post

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

HOUR = dt.timedelta(hours=1)
NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)
OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []}


def complaint(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(*args, **kwargs)
    return str(caught.value)


@pytest.mark.django_db
class TestWhatMatches:
    def test_assert_enqueued_returns_the_results(self) -> None:
        enqueued = [note.enqueue(n) for n in range(2)]
        post.enqueue(1)
        assert [result.id for result in assert_enqueued(note)] == [result.id for result in enqueued]
        [second] = assert_enqueued(note, args=[1], count=1)
        assert second == enqueued[1]

    def test_arguments_are_compared_as_they_were_written(self) -> None:
        post.enqueue(7, to="Ada")
        assert_enqueued(post, args=[7], kwargs={"to": "Ada"})
        assert_enqueued(post, args=(7,))
        assert_not_enqueued(post, args=[])
        assert_not_enqueued(post, kwargs={})
        assert_not_enqueued(post, kwargs={"letter": 7, "to": "Ada"})

    def test_arguments_are_compared_as_json(self) -> None:
        note.enqueue((1, 2), rest={"a": (3,)})
        assert_enqueued(note, args=[(1, 2)], kwargs={"rest": {"a": [3]}})

    def test_queue_and_priority(self) -> None:
        post.enqueue(1)
        post.using(queue_name="slow", priority=-3).enqueue(2)
        assert_enqueued(post, queue="mail", priority=5, args=[1], count=1)
        assert_enqueued(post, queue="slow", priority=-3, args=[2], count=1)
        assert_not_enqueued(post, queue="mail", priority=-3)

    def test_a_count_is_exact(self) -> None:
        for n in range(3):
            note.enqueue(n)
        assert_enqueued(note, count=3)
        assert assert_enqueued(post, count=0) == []
        assert "is 3 times enqueued, and 2 times were expected" in complaint(note, count=2)

    def test_run_after_is_a_time(self) -> None:
        note.using(run_after=NOON).enqueue()
        assert_enqueued(note, run_after=NOON)
        assert_enqueued(note, run_after=NOON.astimezone(dt.timezone(HOUR)))
        assert_not_enqueued(note, run_after=NOON + HOUR)

    def test_run_after_is_a_time_from_the_enqueue_on(self) -> None:
        with clock() as now:
            note.using(run_after=HOUR).enqueue()
            assert_enqueued(note, run_after=HOUR)
            assert_enqueued(note, run_after=now.at + HOUR)
            now.advance(HOUR / 2)
            assert_enqueued(note, run_after=HOUR)
            assert_not_enqueued(note, run_after=HOUR / 2)
            bulk.enqueue_many(post.using(run_after=HOUR), [1])
            assert_enqueued(post, run_after=HOUR)

    def test_a_retry_does_not_change_what_was_enqueued(self) -> None:
        shelf.fail_three_times.using(run_after=HOUR).enqueue()
        with clock() as now:
            now.advance(HOUR)
            drain(limit=1)
            assert_enqueued(shelf.fail_three_times, run_after=HOUR)
            drain()
        assert_not_enqueued(shelf.fail_three_times)

    def test_a_message_that_has_run_is_no_longer_enqueued(self) -> None:
        note.enqueue()
        drain()
        assert_not_enqueued(note)
        assert "1 of tests.support.site.shelf.note have ended" in complaint(note)

    def test_a_message_that_was_rolled_back_is_not_enqueued(self) -> None:
        from django.db import transaction

        with transaction.atomic():
            note.enqueue()
            transaction.set_rollback(True)
        assert_not_enqueued()

    def test_raw_messages_are_no_tasks(self) -> None:
        functions.enqueue(connection, functions.NewMessage(content='{"args": []}'))
        assert_not_enqueued()

    def test_a_malformed_message_is_shown_as_well(self) -> None:
        functions.enqueue(connection, functions.NewMessage(content="[1]", task="tests.support.site.shelf.note"))
        assert_not_enqueued(note, args=[1])
        assert "shelf.note with args=[], kwargs={}" in complaint(note, args=[1])

    def test_each_backend_is_asked_in_its_own_database(self, settings: Settings) -> None:
        settings.TASKS = {"default": OURS, "other": OURS}
        note.using(backend="other").enqueue()
        assert_enqueued(note.using(backend="other"), count=1)

    def test_time_without_zones(self, settings: Settings) -> None:
        settings.USE_TZ = False
        with clock() as now:
            note.using(run_after=HOUR).enqueue()
            assert_enqueued(note, run_after=HOUR)
            assert_enqueued(note, run_after=now.at + HOUR)


@pytest.mark.django_db
class TestWhatIsSaid:
    def test_the_error_lists_enqueued_messages_and_their_differences(self) -> None:
        note.enqueue(1)
        with clock(NOON):
            post.using(run_after=HOUR).enqueue(8, to="Ada")
            said = complaint(post, args=[7], queue="slow", kwargs={"to": "Ada"})
        assert said.splitlines() == [
            "tests.support.site.shelf.post with args=[7], kwargs={'to': 'Ada'}, queue='slow' is not enqueued.",
            "Enqueued are:",
            "  tests.support.site.shelf.note with args=[1], kwargs={}, queue='default', priority=0",
            (
                "  tests.support.site.shelf.post with args=[8], kwargs={'to': 'Ada'}, queue='mail', priority=5, "
                "run_after=2030-06-01 13:00:00+00:00  <- other args and queue"
            ),
        ]

    def test_an_empty_queue_is_shown(self) -> None:
        assert complaint(note) == "tests.support.site.shelf.note is not enqueued.\nNothing is enqueued."

    def test_attempts_are_shown(self) -> None:
        shelf.fail_three_times.enqueue()
        drain(limit=1)
        assert "attempts so far=1" in complaint(note)

    def test_the_error_counts_many_messages(self) -> None:
        bulk.enqueue_many(note, range(50))
        said = complaint(post)
        assert said.count("\n") == 22
        assert said.endswith("… and 30 more")

    def test_an_unexpected_message_is_an_error(self) -> None:
        note.enqueue(7)
        with pytest.raises(AssertionError, match=r"shelf.note with args=\[7\] is 1 time enqueued"):
            assert_not_enqueued(note, args=[7])
        with pytest.raises(AssertionError, match="Any task is 1 time enqueued"):
            assert_not_enqueued()
        with pytest.raises(AssertionError, match="Any task with queue='default' is 1 time enqueued"):
            assert_not_enqueued(queue="default")

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"args": 7}, "args=7 cannot be compared with a message: it must be a list, such as [7]."),
            ({"args": "7"}, "args='7' cannot"),
            ({"kwargs": [7]}, "kwargs=[7] cannot"),
            ({"queue": ["mail"]}, "queue=['mail'] cannot"),
            ({"priority": "high"}, "a whole number from -100 to 100"),
            ({"priority": True}, "priority=True cannot"),
            (
                {"run_after": 60},
                "run_after=60 cannot be compared with a message: it must be a datetime",
            ),
            ({"run_after": dt.datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
            ({"count": -1}, "count=-1 is not a whole number from 0 on"),
            ({"count": True}, "count=True is not"),
        ],
    )
    def test_wrong_arguments_are_named(self, wrong: dict[str, Any], words: str) -> None:
        with pytest.raises(PgQueueError, match=re.escape(words)):
            assert_enqueued(note, **wrong)

    def test_an_object_that_is_no_task_is_named(self) -> None:
        wrong: Any = "shop.tasks.send_receipt"
        with pytest.raises(PgQueueError, match=r"'shop.tasks.send_receipt' is not a task"):
            assert_enqueued(wrong)


class InTestCase(TestCase):
    async def test_async(self) -> None:
        await post.aenqueue(1)
        [result] = await aassert_enqueued(post, queue="mail", count=1)
        await adrain()
        await aassert_not_enqueued(post)
        await result.arefresh()
        assert result.return_value == "1 to all"
        with pytest.raises(AssertionError, match="Nothing is enqueued"):
            await aassert_enqueued(post)
