"""The fate of a job, as anybody can see it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from django_pgqueue.models import Attempt, Message, Worker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary


def ended(result: AnyTaskResult) -> AnyTaskResult:
    """Waits until the job has ended and answers its result as it is then."""

    def finished() -> bool:
        result.refresh()
        return result.is_finished

    wait_until(finished, f"job {result.id} ends")
    return result


def started(diary: Diary, word: str, attempt: int = 1) -> None:
    """Waits until an attempt of ``hold`` runs."""
    wait_until(
        lambda: any(entry["attempt"] == attempt for entry in diary.entries(word)), f"attempt {attempt} of {word!r} runs"
    )


def statuses(result: AnyTaskResult) -> list[str]:
    """How its attempts ended."""
    return list(Attempt.objects.filter(message_id=int(result.id)).order_by("id").values_list("status", flat=True))


def holder(result: AnyTaskResult) -> str | None:
    """The worker that holds it."""
    return Message.objects.values_list("worker", flat=True).get(pk=int(result.id))


def at_rest(pid: int) -> None:
    """Waits for a second in which the process, and not only its jobs, uses next to no processor time."""
    began = [(time.monotonic(), cpu_seconds(pid))]

    def rested() -> bool:
        now, used = time.monotonic(), cpu_seconds(pid)
        at, before = began[-1]
        if now - at < 1.0:
            return False
        began.append((now, used))
        return used - before < 0.25 * (now - at)

    wait_until(rested, f"process {pid} is at rest", 10)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asleep() -> list[str]:
    """The ids of the workers that wait to be woken."""
    return list(Worker.objects.filter(asleep_until__isnull=False).values_list("id", flat=True))
