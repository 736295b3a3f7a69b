"""States of an order's jobs, as texts for its page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone
from django.utils.formats import date_format

from django_pgqueue.compat import AnyTaskResult, TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_pgqueue.models import Message, Step
from example_project.shop.fulfilment import fulfil
from example_project.shop.models import Order, OrderJob
from example_project.shop.tasks import REMIND_AFTER, book_courier, quote_currencies, redeem_voucher, send_reminder

SOON = timedelta(minutes=5)
BUSY_MS, IDLE_MS = 500, 2000
WAITS = {"event": "waits for the payment", "approval": "waits for the shop: see Approvals in the admin"}


class Standing(NamedTuple):
    status: str
    detail: str = ""
    wait_ms: int | None = None
    """Time until the page asks again; None if the state may never change, or much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    label: str
    id: str
    attempts: int
    standing: Standing

    @property
    def has_ended(self) -> bool:
        return self.standing.status in {"done", "failed", "forgotten"}


def job_lines(order: Order) -> list[JobLine]:
    return [job_line(job) for job in order.jobs.all()]


def job_line(job: OrderJob) -> JobLine:
    try:
        result = task_backends["default"].get_result(job.result_id)
    except TaskResultDoesNotExist:
        # Finished jobs are kept for a limited time only.
        return JobLine(label=job.label, id=job.result_id, attempts=0, standing=Standing("forgotten"))
    return JobLine(label=job.label, id=job.result_id, attempts=result.attempts, standing=standing(result))


def standing(result: AnyTaskResult) -> Standing:
    match result.status:
        case TaskResultStatus.SUCCESSFUL:
            return Standing("done", in_words(result.return_value))
        case TaskResultStatus.FAILED:
            return Standing("failed", last_error(result))
        case TaskResultStatus.RUNNING:
            return Standing("running", "", BUSY_MS)
        case _:
            return standing_of_waiting(result)


def standing_of_waiting(result: AnyTaskResult) -> Standing:
    """Tell scheduled jobs from ready ones: django.tasks calls both READY, but the message has the time."""
    now = timezone.now()
    message = Message.objects.filter(pk=result.id).first()
    due = message.dequeue_at if message else now
    if message and message.suspended_attempt == message.attempt and message.unlock_at is None:
        return Standing("suspended", reason_of(message), BUSY_MS)
    if result.errors:
        return Standing("retrying", f"{last_error(result)} Next at {due:%H:%M:%S} UTC.", BUSY_MS)
    if due > now:
        time = date_format(due, "j M, H:i:s")  # a time of day alone would be that of today
        return Standing("scheduled", f"for {time} UTC", IDLE_MS if due < now + SOON else None)
    return Standing("ready", "waits for a worker", BUSY_MS)


def reason_of(message: Message) -> str:
    """Return the reason why a durable job is suspended."""
    if message.awaited_event is None:
        return "waits for the packers"
    last = Step.objects.filter(message_id=message.pk, status="waiting").order_by("finished_at").last()
    return WAITS[last.kind] if last else ""


def in_words(value: object) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)


def last_error(result: AnyTaskResult) -> str:
    """The last line of the last traceback, without the path of the exception's class."""
    if not result.errors:
        return ""
    last_line = result.errors[-1].traceback.strip().rpartition("\n")[2]
    name, colon, message = last_line.partition(": ")
    return message if colon else name


def book(order: Order) -> AnyTaskResult:
    return book_courier.enqueue(order.pk)


def remind(order: Order) -> AnyTaskResult:
    return send_reminder.using(run_after=REMIND_AFTER).enqueue(order.pk)


def quote(order: Order) -> AnyTaskResult:
    return quote_currencies.enqueue(order.pk)


def fulfil_it(order: Order) -> AnyTaskResult:
    return fulfil.enqueue(order.pk)


def redeem(order: Order) -> AnyTaskResult:
    return redeem_voucher.enqueue(order.pk, code="SUMMER-99")


ON_REQUEST: dict[str, Callable[[Order], AnyTaskResult]] = {
    "book": book,
    "remind": remind,
    "quote": quote,
    "redeem": redeem,
    "fulfil": fulfil_it,
}
