"""Tasks as a project that comes from Celery has them: only the import differs."""

from __future__ import annotations

import datetime as dt
import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django_pgqueue.contrib.celery import shared_task

if TYPE_CHECKING:
    from collections.abc import Iterator

seen: list[Any] = []


@shared_task
def note(*args: Any, **kwargs: Any) -> None:
    seen.append((args, kwargs))


@shared_task(bind=True, max_retries=2, default_retry_delay=40, acks_late=True)
def ask_again(self: Any, word: str) -> None:
    seen.append((self.request.id, self.request.retries, word))
    try:
        raise OSError(word)  # noqa: TRY301 -- as such tasks do
    except OSError as error:
        self.retry(exc=error, countdown=30 if self.request.retries == 0 else None)


@shared_task(bind=True, max_retries=1)
def ask_for(self: Any, at: str) -> None:
    self.retry(eta=dt.datetime.fromisoformat(at))


@shared_task(autoretry_for=(OSError,), retry_backoff=10, retry_jitter=False, max_retries=1, queue="mail", priority=7)
def retried_by_itself(error: str) -> None:
    raise OSError(error) if error == "away" else ValueError(error)


@shared_task(autoretry_for=(Exception,), default_retry_delay=0)
def returns_an_object(word: str) -> Any:
    seen.append(word)
    return object()


@shared_task(autoretry_for=(Exception,), default_retry_delay=0, ignore_result=True)
def returns_what_nobody_wants(word: str) -> Any:
    return returns_an_object(word)


@shared_task(ignore_result=True)
def returns_a_generator(word: str) -> Any:
    seen.append(word)
    return (letter for letter in word)


def exhausted(function: Any) -> Any:
    """A decorator that runs a function with a yield, and returns what cannot be stored."""

    @functools.wraps(function)
    def run(word: str) -> set[str]:
        return set(function(word))

    return run


@shared_task(ignore_result=True)
@exhausted
def yields_to_a_decorator(word: str) -> Iterator[str]:
    seen.append(word)
    yield word


@shared_task(ignore_result=True)
def never_runs(word: str) -> Iterator[str]:
    seen.append(word)
    yield word


@shared_task(bind=True, ignore_result=True)
def returns_its_own_request(self: Any, word: str) -> Any:
    seen.append(word)
    return self.request


@contextmanager
def decorated() -> Iterator[None]:
    seen.append("decorated")
    yield
    seen.clear()


@shared_task
@decorated()
def in_a_transaction() -> Any:
    """Stands for a task with transaction.atomic or another decorator below its own."""
    return seen and seen[-1]


@shared_task(bind=True, autoretry_for=(OSError,), retry_backoff=True, default_retry_delay=40)
def send(self: Any, what: str, context: Any = None) -> None:
    if what == "again":
        self.retry()
    elif what == "MaxRetriesExceededError":
        try:
            self.retry(exc=OSError(what))
        except self.MaxRetriesExceededError:
            seen.append(what)
    elif what == "update_state":
        self.update_state(state="PROGRESS")
    elif what == "hostname":
        seen.append(self.request.hostname)
    else:
        seen.append((what, context))
