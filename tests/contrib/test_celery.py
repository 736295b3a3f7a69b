"""``contrib.celery.shared_task``: code for Celery runs here, and what cannot mean the same is refused."""

from __future__ import annotations

import datetime as dt
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from django_pgqueue.contrib.celery import shared_task
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import clock, drain
from tests.support import from_celery
from tests.support.from_celery import ask_again, ask_for, in_a_transaction, note, retried_by_itself, seen, send
from tests.support.watching import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

    from django_pgqueue.testing import Clock

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def now(db: None) -> Iterator[Clock]:
    seen.clear()
    with clock() as stopped:
        yield stopped


def wait_of(result: Any, now: Clock) -> float:
    return float((Message.objects.get(pk=result.id).dequeue_at - now.at).total_seconds())


def test_delay_and_apply_async_enqueue(now: Clock) -> None:
    note.delay(1, word="two")
    later = note.apply_async((2,), {"word": "three"}, countdown=60, queue="slow", priority=9)
    at = note.apply_async([3], eta=now.at + HOUR)
    expired = note.apply_async([4], expires=10)
    assert wait_of(later, now) == pytest.approx(60, abs=5)
    assert wait_of(at, now) == pytest.approx(3600, abs=5)
    message = Message.objects.get(pk=later.id)
    assert (message.queue, message.priority) == ("slow", 9)
    now.advance(2 * HOUR)
    drain()
    assert sorted(args for args, _ in seen) == [(1,), (2,), (3,)]
    assert statuses(expired) == ["cancelled"]
    assert note.AsyncResult(later.id).is_finished


def test_a_bound_task_asks_for_its_retries_until_none_is_left(now: Clock) -> None:
    result = ask_again.delay("again")
    drain()
    assert wait_of(result, now) == pytest.approx(30, abs=5)
    now.advance(HOUR)
    drain()
    assert wait_of(result, now) == pytest.approx(40, abs=5)  # default_retry_delay
    now.advance(HOUR)
    drain()
    assert seen == [(result.id, retries, "again") for retries in (0, 1, 2)]
    assert statuses(result) == ["retried", "retried", "failed"]
    assert Attempt.objects.get(message_id=result.id, final=True).error_class == "builtins.OSError"


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_retry_has_a_time(db: None, settings: Settings, use_tz: bool) -> None:
    settings.USE_TZ = use_tz
    at = dt.datetime.now(dt.UTC) + HOUR
    result = ask_for.delay(at.isoformat())
    drain()
    assert Message.objects.get(pk=result.id).dequeue_at.timestamp() == pytest.approx(at.timestamp(), abs=60)


def test_autoretry_for_tries_again_after_these_errors_alone(now: Clock) -> None:
    away, wrong = retried_by_itself.delay("away"), retried_by_itself.delay("wrong")
    drain(["mail"])
    assert wait_of(away, now) == pytest.approx(10, abs=5)
    assert statuses(wrong) == ["failed"]
    now.advance(HOUR)
    drain(["mail"])
    assert statuses(away) == ["retried", "failed"]


def test_a_direct_call_runs_the_function_here(now: Clock) -> None:
    note(5)
    assert seen == [((5,), {})]
    with pytest.raises(OSError, match="here"):
        ask_again("here")
    assert in_a_transaction() == in_a_transaction.call() == "decorated", "its other decorators run, too"


@pytest.mark.parametrize("task", [note, ask_again], ids=["plain", "bound"])
@pytest.mark.parametrize("name", ["apply", "run"])
def test_what_runs_a_function_here_in_celery_is_answered_with_a_direct_call(task: Any, name: str) -> None:
    """The first argument of a bound task's call() is the context."""
    with pytest.raises(AttributeError, match=rf"Write {task.func.__name__}\(…\): it runs here\."):
        getattr(task, name)


def test_a_bound_task_runs_in_the_immediate_backend(now: Clock, settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.ImmediateBackend"}}
    result = ask_again.delay("away")
    assert seen == [(result.id, 0, "away")]
    [error] = result.errors
    assert error.exception_class is OSError, "nobody tries it again"


def test_a_call_is_checked_when_it_is_enqueued(now: Clock) -> None:
    for task in (ask_again, retried_by_itself):
        with pytest.raises(TypeError, match="cannot be called with these arguments"):
            task.delay()
        with pytest.raises(TypeError, match="cannot be called with these arguments"):
            task.delay("one", word="two")
    send.delay("letter", context={"name": "Ada"})
    drain()
    assert seen == [("letter", {"name": "Ada"})], "a parameter may have the name context"


def test_a_retry_that_is_asked_for_waits_for_default_retry_delay(now: Clock) -> None:
    result = send.delay("again")
    drain()
    assert wait_of(result, now) == pytest.approx(40, abs=5), "and retry_backoff is about errors"


def test_what_self_and_its_request_do_not_have_is_named(now: Clock) -> None:
    for name, words in (
        ("update_state", r"self\.context\.progress"),
        ("MaxRetriesExceededError", r"Ask self\.request\.has_no_retry_left before self\.retry"),
        ("hostname", r"It has args, kwargs, id, retries, "),
    ):
        result = send.delay(name)
        drain()
        error = Attempt.objects.get(message_id=result.id).error_message
        assert re.search(words, error or ""), error
        Message.objects.all().delete()


@pytest.mark.parametrize(
    "task",
    [
        from_celery.returns_what_nobody_wants,
        from_celery.returns_its_own_request,
        from_celery.returns_a_generator,
        from_celery.yields_to_a_decorator,
    ],
)
def test_what_a_task_returns_is_not_stored_with_ignore_result(task: Any, now: Clock) -> None:
    result = task.delay("once")
    drain()
    assert (seen, statuses(result)) == (["once"], ["succeeded"])
    assert task("twice") is not None, "a call returns it, as Celery's does"
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        task.delay()


def test_what_has_not_run_does_not_succeed_with_ignore_result(now: Clock) -> None:
    result = from_celery.never_runs.delay("once")
    drain()
    assert (seen, statuses(result)) == ([], ["failed"])
    assert "None of its code has run" in str(Attempt.objects.get(message_id=result.id).error_message)


def test_a_value_that_cannot_be_stored_is_no_error_of_the_task_that_is_tried_again(now: Clock) -> None:
    result = from_celery.returns_an_object.delay("once")
    drain()
    assert (seen, statuses(result)) == (["once"], ["failed"])


def test_an_option_of_none_is_celery_s_default(now: Clock) -> None:
    declared = shared_task(
        bind=None, queue=None, time_limit=None, rate_limit=None, retry_backoff=None, expires=None, base=None
    )(note.func)
    assert (declared.queue_name, declared.timeout, declared.expires) == ("default", None, None)
    note.apply_async((1,), link=None, ignore_result=True)


def test_a_pickled_task_is_still_one_for_celery_s_calls() -> None:
    for task in (note, ask_again):
        assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_limit": "10/m"}, r"'rate_limit' has no meaning here\. Declare the task with @task: channel=…"),
        ({"name": "send"}, "name of a task is its dotted path"),
        ({"base": object}, r"'base' has no meaning here\. Leave it out\."),
        ({"max_retries": None}, "each task has a limit here"),
        ({"soft_time_limit": 5}, r"timeout=…"),
        ({"retry_kwargs": {"max_retries": 5}}, r"Write max_retries=… and default_retry_delay=…"),
        ({"atomic": True}, r"'atomic' has no meaning here\. Declare the task with @task: atomic=…\."),
        ({"unique_key": "x"}, r"Declare the task with @task: unique_key=…\."),
        ({"queue_name": "mail"}, r"Write queue=…\."),
        ({"max_attempts": 5}, r"Write max_retries=…, which does not count the first attempt\."),
        ({"takes_context": True}, r"Write bind=True\."),
        ({"throws": (ValueError,)}, r"Leave it out: without autoretry_for, an exception fails the task at once\."),
        ({"on_failure": print}, r"Receive task_finished of django\.tasks\.signals\."),
        ({"autoretry_for": OSError}, r"autoretry_for must be a tuple of exception classes: \(OSError,\)\."),
        ({"dont_autoretry_for": KeyError}, r"dont_autoretry_for must be a tuple"),
        ({"default_retry_delay": HOUR}, r"default_retry_delay=datetime\.timedelta.* must be a number of seconds"),
    ],
)
def test_an_option_that_cannot_mean_the_same_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        shared_task(**options)(from_celery.note.func)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"link": note}, r"'link' has no meaning here\. Write next_task\.using\(after=\[result\]\)"),
        ({"link_error": note}, r"'link_error' has no meaning here\. Write a batch"),
        ({"retry": True}, r"'retry' has no meaning here\. Leave it out: no broker"),
        ({"task_id": "x"}, r"Leave it out: result\.id is the id"),
        ({"run_after": HOUR}, r"Write countdown=… or eta=…"),
        ({"unique_key": "x"}, r"Declare the task with @task: unique_key=…"),
        ({"countdown": 1, "eta": timezone.now()}, "give one of them"),
        ({"eta": "tomorrow"}, "eta must be a datetime, not 'tomorrow'"),
        ({"countdown": HOUR}, r"countdown must be a number of seconds, not datetime\.timedelta"),
        ({"args": "word"}, "takes a list and a dict of arguments, not 'word' and None"),
    ],
)
def test_a_call_that_cannot_mean_the_same_is_refused(call: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        note.apply_async(**call)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chord", r"has no 'chord', only shared_task\. Write a batch"),
        ("Celery", "manage.py qworker"),
        ("cord", "'cord'"),
    ],
)
def test_an_import_of_what_celery_has_besides_names_the_way_here(name: str, words: str) -> None:
    with pytest.raises(ImportError, match=words):
        exec(f"from django_pgqueue.contrib.celery import {name}")  # noqa: S102


def test_what_celery_has_besides_names_the_way_here() -> None:
    with pytest.raises(AttributeError, match=r"using\(after="):
        _ = note.s  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="is async"):
        shared_task(coroutine)


async def coroutine() -> None: ...
