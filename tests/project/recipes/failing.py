"""Tasks that tell a log what they do, and fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import structlog
from asgiref.sync import sync_to_async

from django_pgqueue.exceptions import Retry
from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext


class VoucherExpired(Exception):
    pass


@task
def fail(word: str) -> None:
    import sentry_sdk

    sentry_sdk.set_tag("word", word)
    raise VoucherExpired(word)


@task(takes_context=True, max_attempts=2, backoff=lambda *_: 0)
def fail_once(context: TaskContext[Any, Any]) -> None:
    if context.attempt == 1:
        raise VoucherExpired("once")
    logging.getLogger("shop").error("something else")


@task
def say(word: str) -> None:
    structlog.get_logger().info(word)


@task
async def say_on(word: str) -> None:
    structlog.get_logger().info(word)


@task
async def fail_on(word: str) -> None:
    import sentry_sdk

    sentry_sdk.set_tag("word", word)
    await asyncio.sleep(0.05)  # others run meanwhile
    raise VoucherExpired(word)


def say_it(word: str) -> None:
    logging.getLogger("shop").info("said: %s", word)


@task
def log(word: str) -> None:
    say_it(word)
    thread = threading.Thread(target=copy_context().run, args=[say_it, word])
    thread.start()
    thread.join()


@task
async def log_on(word: str) -> None:
    say_it(word)
    await asyncio.sleep(0.05)
    await sync_to_async(say_it)(word)


@task(max_attempts=5, backoff=lambda *_: 0)
def ask_again() -> None:
    raise Retry
