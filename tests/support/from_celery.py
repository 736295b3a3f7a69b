"""Tasks as a project that comes from Celery has them: only the import differs."""

from __future__ import annotations

from typing import Any

from django_pgqueue.contrib.celery import shared_task

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


@shared_task(autoretry_for=(OSError,), retry_backoff=10, retry_jitter=False, max_retries=1, queue="mail", priority=7)
def retried_by_itself(error: str) -> None:
    raise OSError(error) if error == "away" else ValueError(error)
