"""What became of an order's jobs, in words for its page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from django_pgqueue.compat import TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_backends
from example_project.shop.models import Order, OrderJob
from example_project.shop.tasks import REMIND_AFTER, quote_currencies, redeem_voucher, send_reminder

SOON = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    label: str
    id: str
    status: str
    detail: str = ""
    attempts: int = 0
    wait_ms: int | None = None  # until it is worth looking again; None: nothing more will happen


def job_lines(order: Order) -> list[JobLine]:
    return [job_line(job) for job in order.jobs.all()]


def job_line(job: OrderJob) -> JobLine:
    try:
        result = task_backends["default"].get_result(job.result_id)
    except TaskResultDoesNotExist:
        # Finished jobs are kept for a limited time only.
        return JobLine(label=job.label, id=job.result_id, status="forgotten", detail="its history has been dropped")
    status, detail, wait_ms = describe(result)
    return JobLine(
        label=job.label, id=job.result_id, status=status, detail=detail, attempts=result.attempts, wait_ms=wait_ms
    )


def describe(result: TaskResult) -> tuple[str, str, int | None]:
    match result.status:
        case TaskResultStatus.SUCCESSFUL:
            return "done", in_words(result.return_value), None
        case TaskResultStatus.FAILED:
            return "failed", last_error(result), None
        case TaskResultStatus.RUNNING:
            return "running", "", 500
    if result.errors:
        return "retrying", last_error(result), 500
    run_after = result.task.run_after
    if run_after and run_after > timezone.now():
        wait_ms = 2000 if run_after < timezone.now() + SOON else None
        return "scheduled", f"for {run_after:%H:%M:%S} UTC", wait_ms
    return "ready", "waits for a worker", 500


def in_words(value: object) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)


def last_error(result: TaskResult) -> str:
    """The last line of the last traceback, without the path of the exception's class."""
    if not result.errors:
        return ""
    last_line = result.errors[-1].traceback.strip().rpartition("\n")[2]
    name, colon, message = last_line.partition(": ")
    return message if colon else name


def remind(order: Order) -> TaskResult:
    return send_reminder.using(run_after=REMIND_AFTER).enqueue(order.pk)


def quote(order: Order) -> TaskResult:
    return quote_currencies.enqueue(order.pk)


def redeem(order: Order) -> TaskResult:
    return redeem_voucher.enqueue(order.pk, code="SUMMER-99")


ON_REQUEST: dict[str, Callable[[Order], TaskResult]] = {"remind": remind, "quote": quote, "redeem": redeem}
