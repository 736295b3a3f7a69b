"""Tasks that tell a log what they do, and fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import structlog

from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django_pgqueue.compat import TaskContext


class VoucherExpired(Exception):
    pass


@task
def fail(word: str) -> None:
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
