"""The same tasks after the move.  Some have changed their import only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_pgqueue import control
from django_pgqueue.contrib.celery import shared_task
from django_pgqueue.exceptions import ChildFailed
from django_pgqueue.tasks import batch, cron, task
from tests.contrib.archive import work


def scheduled(name: str) -> dict[str, Any]:
    """Options of the task that a schedule enqueues."""
    _, when, expires = work.SCHEDULES[name]
    return {"schedule": cron(when, name=name), "expires": timedelta(seconds=expires)}


@shared_task(bind=True)
def consume_file(self: Any, path: str) -> str:
    return work.consume_file(path)


@task(takes_context=True)
def after_consumption(context: Any, uid: str) -> None:
    """The body of the chord and its error callback."""
    results = context.results()
    if any(isinstance(result, ChildFailed) for result in results):
        work.error_callback(uid)
    else:
        work.apply_mail_action(results, uid)


@shared_task
def update_document_archive_file(document: int) -> None:
    work.update_document_archive_file(document)


@shared_task
def bulk_update_documents(documents: list[int]) -> None:
    work.bulk_update_documents(documents)


@shared_task(autoretry_for=(work.Refused,), default_retry_delay=0, max_retries=3)
def send_webhook(url: str) -> None:
    work.send_webhook(url)


@task(**scheduled("Check all e-mail accounts"))
def process_mail_accounts() -> None:
    work.ran("process_mail_accounts")


@task(**scheduled("Train the classifier"))
def train_classifier() -> None:
    work.ran("train_classifier")


@task(**scheduled("Optimize the index"))
def index_optimize() -> None:
    work.ran("index_optimize")


@task(**scheduled("Perform sanity check"))
def sanity_check() -> None:
    work.ran("sanity_check")


# Who enqueues them


def mail_came(uid: str, paths: list[str]) -> None:
    with batch(after_consumption, uid, results=True) as jobs:
        for path in paths:
            jobs.enqueue(consume_file, path)


def rotate(documents: list[int]) -> None:
    with batch(bulk_update_documents, documents, when="succeeded") as jobs:
        for one in documents:
            jobs.enqueue(update_document_archive_file, one)


def workflow(url: str) -> None:
    send_webhook.delay(url)


def schedule_is_due(name: str) -> None:
    control.run_schedule(name)
