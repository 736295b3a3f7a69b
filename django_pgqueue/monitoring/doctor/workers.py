"""Checks that workers serve every message that waits, and that channels count what runs correctly."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import functions
from django_pgqueue.monitoring import waiting
from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import quoted
from django_pgqueue.monitoring.overview import Paused, overdue, unknown
from django_pgqueue.monitoring.overview.coverage import SILENT_AFTER
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

LOOKED_AT = 10_000
"""So many messages at either end of the queue are searched for unknown tasks."""
MOST = 10
EXPIRED_FOR = dt.timedelta(minutes=2)
PAUSED_FOR = dt.timedelta(days=1)
HELD_FOR = dt.timedelta(hours=6)

DEAD_WORKER = Kind(
    "dead-worker",
    Severity.WARNING,
    "The worker has not deleted its row: it was killed, hangs, or cannot reach the database. Other workers take its "
    "messages over when their locks run out. Check its host, and start the worker again. The command deletes its row.",
)
NO_WORKER = Kind("no-worker", Severity.ERROR, "Start a worker that serves the queue.")
EXPIRED_MESSAGES = Kind(
    "expired-messages",
    Severity.ERROR,
    "A worker that serves the queue takes such messages over at once, unless the queue is paused: no such worker "
    "polls the queue.",
)
POISON = Kind(
    "poison-job",
    Severity.WARNING,
    "Find out what ends the process: os._exit, a crash in a library, or too much memory. A worker runs such a job "
    "alone, and the job fails after 20 losses. Cancel the remaining jobs, or let them fail.",
)
PAUSED_QUEUE = Kind(
    "paused-queue",
    Severity.WARNING,
    "A user paused the queue, and may have forgotten to resume it: its messages wait until then. Resume the queue, or "
    "cancel its messages.",
)
LONG_HELD = Kind(
    "long-held",
    Severity.WARNING,
    "The worker is alive and renews the lock of the job. If the job does not need that long, it hangs and occupies a "
    "slot: check what the process does, ask the job to stop, and give the task a timeout.",
)
WORKER_PROBLEM = Kind(
    "worker-problem",
    Severity.WARNING,
    "The worker does its other work and tries again. Remove the cause: a missing right, a lock of another session, or "
    "a row that a user wrote by hand.",
)
OVERDUE_LOOK = Kind(
    "overdue-look",
    Severity.ERROR,
    "Every worker checks such messages several times a second. No worker is alive, or the check fails: see "
    "worker-problem. The command does the check, and prints its error.",
)
UNKNOWN_TASK = Kind(
    "unknown-task",
    Severity.ERROR,
    "A worker with this code gives such messages back, and in the end they fail. Restore the task, import its module "
    "in the ready() of an app, or cancel its messages.",
)
PARKED_MESSAGES = Kind(
    "parked-messages",
    Severity.WARNING,
    "The workers that claimed these messages gave them back. While a deploy goes on, a new worker takes them at once. "
    "Otherwise deploy the code of the task to the workers, correct its name, or cancel the messages: when all living "
    "workers of the queue lack the task for UNKNOWN_TASK_SECONDS, the messages fail.",
)
CHANNEL_COUNT = Kind(
    "channel-count",
    Severity.ERROR,
    "With a wrong count, the channel runs too few messages or too many. A change bypassed the queue's functions and "
    "triggers: a disabled trigger, a truncate, or a restored table. Workers recount once an hour; so does the "
    "command.",
)
MISSED_END = Kind(
    "missed-end",
    Severity.ERROR,
    "Messages were deleted without the queue's triggers: with a disabled one, or session_replication_role replica. The "
    "command checks the first hundred of those that wait for them, and workers check the rest.",
)

# One that has ended just now has its row in pgqueue_ended.
MISSED = """
select w.id, w.awaited_id, count(*) over ()
from (
    select m.id, m.awaited_id from pgqueue_message m where m.awaited_id is not null and m.check_at is null
    limit %(looked_at)s
) as w
where (select true from pgqueue_message a where a.id = w.awaited_id) is null
  and not exists (select from pgqueue_ended e where e.message_id = w.awaited_id)
order by w.id
limit 1
"""

EXPIRED = """
select h.queue, count(*), min(h.unlock_at) from (
    select m.queue, m.unlock_at from pgqueue_message m
    where m.unlock_at <= pgqueue_now() - %(silent_ms)s
      and not exists (select from pgqueue_queue q where q.name = m.queue and q.paused_at is not null)
    order by m.unlock_at limit %(most)s
) as h
group by h.queue order by h.queue
"""

# A job is lost once when it merely ran beside the culprit: it succeeds when a worker takes it alone.
POISONS = """
select p.task, count(*), max(p.message_id), max(p.lost) from (
    select n.task, n.message_id, count(*) as lost from (
        select a.task, a.message_id, a.error_class, a.finished_at from pgqueue_attempt a
        where a.status in ('failed', 'retried', 'lost') order by a.id desc limit %(looked_at)s
    ) as n
    where n.task is not null and n.error_class = 'django_pgqueue.exceptions.AttemptLost'
      and n.finished_at > pgqueue_clock() - interval '1 day'
    group by n.task, n.message_id having count(*) >= 3
) as p
group by p.task order by max(p.lost) desc, p.task limit %(most)s
"""

HELD = """
select m.task, count(*), (array_agg(m.id order by m.locked_at))[1], (array_agg(m.worker order by m.locked_at))[1],
       extract(epoch from pgqueue_clock() - min(m.locked_at))::float8
from pgqueue_message m
where m.unlock_at > pgqueue_now() and m.locked_at < pgqueue_clock() - %(held_for)s
group by m.task
order by 5 desc
limit %(most)s
"""

PROBLEMS = """
select w.problem, count(*), min(w.id) from pgqueue_worker w
where w.problem is not null and (w.seen_at > pgqueue_clock() - %(silent_after)s or w.silent_until > pgqueue_now())
group by w.problem
order by 2 desc, 1
limit %(most)s
"""

TASKS = """
select t.task, count(*), min(t.queue) from (
    (select m.id, m.task, m.queue from pgqueue_message m where m.task is not null order by m.id limit %(looked_at)s)
    union
    (select m.id, m.task, m.queue from pgqueue_message m where m.task is not null order by m.id desc
     limit %(looked_at)s)
) as t
group by t.task order by t.task
"""

SCHEDULES = (
    "select s.name, s.task from pgqueue_schedule s where s.paused_at is null order by s.name limit %(looked_at)s"
)

# Commands that the findings show.
CANCEL_ALONE = (  # A quarantined job often runs at this moment: then it is not tried again.
    "select pgqueue_message_cancel(ids), pgqueue_message_request_cancel(ids) from (select array_agg(id) as ids "
    "from pgqueue_message where alone_at is not null and task = {}) as poison;"
)
CANCEL = "select pgqueue_message_cancel(array(select id from pgqueue_message where task = {}));"
MORE_PARKED = "select * from pgqueue_message_parked(1000);"
PAUSE = "update pgqueue_schedule set paused_at = now() where name = {};"


def dead_workers(patient: Subject) -> Iterator[Finding]:
    now = patient.value("select pgqueue_clock()")
    for one in workers(now, using=patient.using).silent[:MOST]:
        yield DEAD_WORKER.found(
            f"Worker {one.id} (pid {one.pid} on {one.hostname}) has not renewed its row for {span(one.silence)}.",
            f"select pgqueue_worker_gone({quoted(one.id)});",
            worker=one.id,
            hostname=one.hostname,
            pid=one.pid,
            silent_seconds=one.silence.total_seconds(),
        )


def idle_queues(patient: Subject) -> Iterator[Finding]:
    now = patient.value("select pgqueue_clock()")
    for reason, count in waiting.idle_queues(now, using=patient.using):
        ready = f"{'' if count.ready.is_exact else 'about '}{count.ready.value:,}"
        ready = f"{ready} {'is' if ready == '1' else 'are'} ready"
        match reason:
            case waiting.NoWorker(queue) if count.tasks_are_ready:
                oldest = f", the oldest for {span(count.oldest)}" if count.oldest is not None else ""
                yield NO_WORKER.found(
                    f"No worker serves the queue {queue!r}: {ready}{oldest} (no such worker has renewed its row for "
                    f"{span(SILENT_AFTER)}).",
                    f"python manage.py qworker --queues {shlex.quote(queue)}",
                    queue=queue,
                    ready=count.ready.value,
                    oldest_seconds=count.oldest.total_seconds() if count.oldest is not None else None,
                )
            case Paused(queue=queue, since=since, by=by) if count.ready and now - since > PAUSED_FOR:
                who = f" by {by}" if by else ""
                yield PAUSED_QUEUE.found(
                    f"The queue {queue!r} was paused {span(now - since)} ago{who}, and {ready} in it.",
                    f"select pgqueue_queue_resume({quoted(queue)});",
                    queue=queue,
                    ready=count.ready.value,
                    paused_seconds=(now - since).total_seconds(),
                    paused_by=by,
                )


def expired_messages(patient: Subject) -> Iterator[Finding]:
    asked = {"silent_ms": int(EXPIRED_FOR.total_seconds() * 1000), "most": LOOKED_AT}
    now_ms = patient.value("select pgqueue_now()")
    for queue, count, oldest in patient.rows(EXPIRED, asked):
        since = dt.timedelta(milliseconds=now_ms - oldest)
        messages, their, them = ("1 message", "its", "it") if count == 1 else (f"{count:,} messages", "their", "them")
        yield EXPIRED_MESSAGES.found(
            f"{messages} of the queue {queue!r} lost {their} worker, the first {span(since)} ago, and no worker takes "
            f"{them} over.",
            f"python manage.py qworker --queues {shlex.quote(queue)}",
            queue=queue,
            messages=count,
            oldest_seconds=since.total_seconds(),
        )


def poison_jobs(patient: Subject) -> Iterator[Finding]:
    for task, jobs, newest, lost in patient.rows(POISONS, {"looked_at": LOOKED_AT, "most": MOST}):
        yield POISON.found(
            f"Workers died repeatedly while they ran the task {task}: up to {lost} times for one job, {jobs} "
            f"{'job' if jobs == 1 else 'jobs'} in the last day (the newest is {newest}).",
            CANCEL_ALONE.format(quoted(task)),
            task=task,
            jobs=jobs,
            newest=newest,
            lost=lost,
        )


def long_held(patient: Subject) -> Iterator[Finding]:
    for task, count, message_id, worker, seconds in patient.rows(HELD, {"held_for": HELD_FOR, "most": MOST}):
        one, many = ("raw message", "raw messages") if task is None else (f"job of {task}", f"jobs of {task}")
        yield LONG_HELD.found(
            f"{count:,} {f'{one} has' if count == 1 else f'{many} have'} been running for more than {span(HELD_FOR)}, "
            f"{message_id} in worker {worker} for {span(dt.timedelta(seconds=seconds))}.",
            f"select pgqueue_message_request_cancel(array[{message_id}]);",
            task=task,
            messages=count,
            message=message_id,
            worker=worker,
            held_seconds=seconds,
        )


def worker_problems(patient: Subject) -> Iterator[Finding]:
    for problem, count, worker in patient.rows(PROBLEMS, {"silent_after": SILENT_AFTER, "most": MOST}):
        others = f" and {count - 1} more" if count > 1 else ""
        yield WORKER_PROBLEM.found(
            f"Worker {worker}{others} cannot do a part of its work: {problem}",
            "select id, hostname, problem from pgqueue_worker where problem is not null;",
            problem=problem,
            workers=count,
            worker=worker,
        )


def overdue_looks(patient: Subject) -> Iterator[Finding]:
    late = overdue.found(using=patient.using)
    if late is not None:
        yield OVERDUE_LOOK.found(
            f"{late.checks:,} {'check is' if late.checks == 1 else 'checks are'} due of messages that wait for others, "
            f"the first for {span(late.since)}, and no worker does {'it' if late.checks == 1 else 'them'}.",
            "select pgqueue_message_settle();",
            looks=late.checks,
            overdue_seconds=late.since.total_seconds(),
        )


def missed_ends(patient: Subject) -> Iterator[Finding]:
    for first, awaited, count in patient.rows(MISSED, {"looked_at": LOOKED_AT}):
        waits = "One of the checked messages waits" if count == 1 else f"{count:,} of the checked messages wait"
        yield MISSED_END.found(
            f"{waits} for others that have left the queue, and no worker was told. The first, {first}, waits for "
            f"{awaited}.",
            "update pgqueue_message m set check_at = pgqueue_now() where m.awaited_id is not null "
            "and m.check_at is null and not exists (select from pgqueue_message a where a.id = m.awaited_id); "
            "select pgqueue_message_settle();",
            messages=count,
            first=first,
        )


def unknown_tasks(patient: Subject) -> Iterator[Finding]:
    registry.autodiscover()
    asked = {"looked_at": LOOKED_AT}
    for task, count, queue in patient.rows(TASKS, asked):
        if (problem := registry.why_unknown(task)) is not None:
            where = f"One of the checked messages, in the queue {queue!r}, names"
            if count > 1:
                where = f"{count:,} of the checked messages, some of them in the queue {queue!r}, name"
            yield UNKNOWN_TASK.found(
                f"{where} a task that does not exist: {problem}",
                CANCEL.format(quoted(task)),
                task=task,
                messages=count,
                queue=queue,
            )
    for name, task in patient.rows(SCHEDULES, asked):
        if (problem := registry.why_unknown(task)) is not None:
            yield UNKNOWN_TASK.found(
                f"The schedule {name!r} enqueues a task that does not exist: {problem}",
                PAUSE.format(quoted(name)),
                task=task,
                schedule=name,
            )


def parked_messages(patient: Subject) -> Iterator[Finding]:
    now = patient.value("select pgqueue_clock()")
    found = unknown.tasks(now, using=patient.using)
    for one in found.newest:
        yield PARKED_MESSAGES.found(
            f"{one}.".replace("..", "."),
            CANCEL.format(quoted(one.task)),
            task=one.task,
            queue=one.queue,
            messages=one.count.value,
            wait_seconds=one.wait.total_seconds(),
        )
    if found.rest:
        yield PARKED_MESSAGES.found(found.rest, MORE_PARKED, tasks=found.more.value)


def miscounted_channels(patient: Subject) -> Iterator[Finding]:
    for name, counted, running in functions.channels_miscounted(connections[patient.using], limit=MOST):
        yield CHANNEL_COUNT.found(
            f"The channel {name!r} counts {counted} running messages, but has {running}.",
            "select * from pgqueue_channel_repair();",
            channel=name,
            counted=counted,
            running=running,
        )
    for name in functions.channels_unseen(connections[patient.using], limit=MOST):
        yield CHANNEL_COUNT.found(
            f"The channel {name!r} has messages that no worker knows of.",
            "select * from pgqueue_channel_repair();",
            channel=name,
        )
