"""Dependencies: jobs that run after others, for chains, fan-out and fan-in."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import transaction

from django_pgqueue.compat import InvalidTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django_pgqueue.compat import AnyTask, AnyTaskResult

POLICIES = ("finished", "succeeded")
MAX_IDS = 100_000


def ids(results: Iterable[AnyTaskResult | int | str]) -> tuple[int, ...]:
    """Returns the message ids of results.

    >>> ids([3, "1", 3])
    (1, 3)
    """
    found = set()
    for result in results:
        given: Any = getattr(result, "id", result)
        if isinstance(given, bool) or not str(given).isascii() or not str(given).isdigit():
            message = f"after has {result!r}, which is neither the result of an enqueued job nor its id."
            raise InvalidTask(message)
        found.add(int(given))
    return tuple(sorted(found))


def validate(task: AnyTask) -> None:
    after, policy = getattr(task, "after", ()), getattr(task, "after_policy", "finished")
    if policy not in POLICIES:
        message = f"after_policy must be one of {', '.join(POLICIES)}, not {policy!r}."
        raise InvalidTask(message)
    if len(after) > MAX_IDS:
        message = (
            f"after has {len(after):,} jobs and may have {MAX_IDS:,}: split them into batches, each with its own "
            "callback."
        )
        raise InvalidTask(message)
    if after and getattr(task, "unique_key", None) is not None:
        message = "A job that comes after others cannot have a unique_key: it would hold the key while it waits."
        raise InvalidTask(message)


@dataclass(slots=True)
class Batch:
    """Object of a ``batch``: it enqueues jobs and keeps their results."""

    results: list[AnyTaskResult] = field(default_factory=list)
    callback: AnyTaskResult | None = None

    def enqueue(self, task: AnyTask, *args: Any, **kwargs: Any) -> AnyTaskResult:
        result = task.enqueue(*args, **kwargs)
        self.results.append(result)
        return result


@contextmanager
def batch(then: Any, *args: Any, when: str = "finished", **kwargs: Any) -> Iterator[Batch]:
    """Enqueues jobs, and the job ``then``, which runs once when all of them have ended.

    ``when="succeeded"``: ``then`` is cancelled if one of them fails or is cancelled.  All jobs are enqueued, or none.

    >>> with batch(send_report, month, when="succeeded") as jobs:
    ...     for order in orders:
    ...         jobs.enqueue(price, order.pk)  # doctest: +SKIP
    """
    jobs = Batch()
    with transaction.atomic(using=then.get_backend().settings.database):
        yield jobs
        jobs.callback = then.using(after=jobs.results, after_policy=when).enqueue(*args, **kwargs)
