"""The tasks on Celery, as the project had them."""

from __future__ import annotations

import warnings
from typing import Any

from celery import Celery, chord
from celery.beat import Scheduler
from celery.schedules import crontab

from tests.contrib.archive import work

app = Celery("archive", broker="memory://", backend="cache+memory://", set_as_current=False, fixups=[])
app.conf.update(
    timezone="UTC",
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    beat_schedule={
        name: {
            "task": f"{__name__}.{task}",
            "schedule": crontab.from_string(cron),
            "options": {"expires": expires},
        }
        for name, (task, cron, expires) in work.SCHEDULES.items()
    },
)


@app.task(bind=True)
def consume_file(self: Any, path: str) -> str:
    return work.consume_file(path)


@app.task
def apply_mail_action(results: list[str], uid: str) -> None:
    work.apply_mail_action(results, uid)


@app.task
def error_callback(request: Any, exc: Any, traceback: Any, uid: str) -> None:
    work.error_callback(uid)


@app.task
def update_document_archive_file(document: int) -> None:
    work.update_document_archive_file(document)


@app.task
def bulk_update_documents(documents: list[int]) -> None:
    work.bulk_update_documents(documents)


@app.task(autoretry_for=(work.Refused,), default_retry_delay=0, max_retries=3)
def send_webhook(url: str) -> None:
    work.send_webhook(url)


@app.task
def process_mail_accounts() -> None:
    work.ran("process_mail_accounts")


@app.task
def train_classifier() -> None:
    work.ran("train_classifier")


@app.task
def index_optimize() -> None:
    work.ran("index_optimize")


@app.task
def sanity_check() -> None:
    work.ran("sanity_check")


# Who enqueues them


def mail_came(uid: str, paths: list[str]) -> None:
    body = apply_mail_action.s(uid=uid)
    header = [consume_file.s(path) for path in paths]
    with warnings.catch_warnings(action="ignore"):  # Celery means to call error callbacks otherwise some day
        chord(header, body).on_error(error_callback.s(uid=uid)).delay()


def rotate(documents: list[int]) -> None:
    chord([update_document_archive_file.s(one) for one in documents], bulk_update_documents.si(documents)).delay()


def workflow(url: str) -> None:
    send_webhook.delay(url)


def schedule_is_due(name: str) -> None:
    scheduler = Scheduler(app, lazy=True)
    scheduler.setup_schedule()
    scheduler.apply_async(scheduler.schedule[name], advance=False)
