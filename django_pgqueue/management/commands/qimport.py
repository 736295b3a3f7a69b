"""``manage.py qimport``: moves the waiting jobs and the schedules of another queue into this one."""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import DatabaseError, ProgrammingError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.backend.schedules import check_public
from django_pgqueue.compat import TaskException
from django_pgqueue.exceptions import OutdatedQueue, PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.management.sources.celery_beat import CeleryBeat
from django_pgqueue.management.sources.django_q2 import DjangoQ2
from django_pgqueue.management.sources.found import AT_A_TIME, Job, Unmeant
from django_pgqueue.management.sources.procrastinate import Procrastinate
from django_pgqueue.management.sources.tasks_db import TasksDb
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.models.tables import Schedule
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.schedule import check_call
from django_pgqueue.values import content, names, redaction, times

if TYPE_CHECKING:
    from datetime import datetime

    from django.core.management.base import CommandParser

    from django_pgqueue.management.sources.found import Recurring, Row, Source

SOURCES: dict[str, type[Source]] = {
    "tasks-db": TasksDb,
    "procrastinate": Procrastinate,
    "django-q2": DjangoQ2,
    "celery-beat": CeleryBeat,
}
FEW = 5
"""So many ids of rows that stay are shown."""


class Command(PrintingCommand):
    help = (
        "Moves the waiting jobs and the schedules of another queue in the same database into this one, in one "
        "transaction. What cannot be moved is listed, and stays where it is. Begin with --dry-run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--from", dest="source", required=True, choices=SOURCES, help="The other queue.")
        parser.add_argument("--dry-run", action="store_true", help="Print what would be moved, and change nothing.")
        parser.add_argument(
            "--database", metavar="ALIAS", help="The database of both queues (default: the only one with a queue)."
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        registry.autodiscover()
        found = databases.asked(options["database"])
        if len(found) != 1:
            message = f"TASKS names queues in {', '.join(found) or 'no database'}: choose one with --database."
            raise CommandError(message)
        source = SOURCES[options["source"]]()
        move = Move(source, found[0], is_dry=options["dry_run"])
        with databases.with_its_queue(found[0]):
            check_source(options["source"], source, found[0])
            try:
                with transaction.atomic(using=found[0]):
                    move.run()
                    if move.is_dry:
                        transaction.set_rollback(True, using=found[0])
            except ProgrammingError as error:  # no permission, or a column that another release of theirs has not
                message = f"Nothing was moved from {options['source']}: {str(error).splitlines()[0]}."
                raise CommandError(message) from error
        if options["verbosity"]:
            self._tell(move)

    def _tell(self, move: Move) -> None:
        verb = "would move" if move.is_dry else "moved"
        for (kind, task), count in sorted(move.moved.items()):
            self.stdout.write(f"{verb} {count:,} {kind}{'s' if count > 1 else ''} of {redaction.quote(task)}")
        for (table, task, why), ids in sorted(move.left.items()):
            shown = ", ".join(map(str, ids[:FEW])) + (f" and {len(ids) - FEW:,} more" if len(ids) > FEW else "")
            self.stdout.write(f"left {len(ids):,} of {redaction.quote(task)} in {table} (id {shown}): {why}")
        if not move.moved and not move.left:
            self.stdout.write("nothing waits")
        if move.is_dry:
            self.stdout.write("Nothing was changed: this was --dry-run.")


def check_source(name: str, source: Source, database: str) -> None:
    connection = connections[database]
    there = connection.introspection.table_names()
    if missing := [table for table in source.TABLES if table not in there]:
        message = f"The database {database!r} has no table {missing[0]}: it holds no queue of {name}."
        raise CommandError(message)
    if isinstance(source, DjangoQ2) and find_spec("django_q") is None:
        message = "django-q2 signs what it writes: install it to read that."
        raise CommandError(message)


class Move:
    """Moves what a source has, within the caller's transaction, which is rolled back if it ``is_dry``."""

    def __init__(self, source: Source, database: str, *, is_dry: bool) -> None:
        self.source = source
        self.database = database
        self.is_dry = is_dry
        self.connection = connections[database]
        self.moved: Counter[tuple[str, str]] = Counter()
        self.left: defaultdict[tuple[str, str, str], list[Any]] = defaultdict(list)

    def run(self) -> None:
        with functions.explained(self.database):
            self.now: datetime = functions.now(self.connection)
        rows = self.source.found(self.connection)
        while some := list(islice(rows, AT_A_TIME)):
            moved = [row for row in some if self._is_moved(row)]
            if moved:
                self.source.moved(self.connection, moved)

    def _is_moved(self, row: Row) -> bool:
        try:
            with functions.explained(self.database), transaction.atomic(using=self.database):
                self._move(row)
        except (OutdatedQueue, ImproperlyConfigured, DatabaseError):
            raise  # it is no reason of one row
        except Exception as error:  # noqa: BLE001 -- a unique_key of the project may raise anything
            is_a_sentence = isinstance(error, (PgQueueError, TaskException, Unmeant))
            why = str(error) if is_a_sentence else f"{type(error).__name__}: {error}"
            self.left[row.table, row.task, why].append(row.id)
            return False
        self.moved["job" if isinstance(row.means, Job) else "schedule", row.task] += 1
        return True

    def _move(self, row: Row) -> None:
        if isinstance(row.means, Unmeant):
            raise row.means
        task = self._task(row.means.task)
        if isinstance(row.means, Job):
            self._enqueue(task, row.means)
        else:
            self._schedule(task, row.means)

    def _task(self, path: str) -> Any:
        check_public(path)
        task = registry.find(path)
        backend = task.get_backend()
        if not isinstance(backend, PgQueueBackend) or backend.settings.database != self.database:
            message = f"its backend {task.backend!r} has no queue in the database {self.database!r}"
            raise Unmeant(message)
        return task

    def _enqueue(self, task: Any, job: Job) -> None:
        own = {"queue_name": job.queue, "priority": job.priority, "run_after": job.run_after}
        task = task.using(**{name: value for name, value in own.items() if value is not None})
        backend: PgQueueBackend = task.get_backend()
        enqueue = backend.rehearse if self.is_dry else backend.enqueue
        enqueue(task, job.args, job.kwargs)

    def _schedule(self, task: Any, recurring: Recurring) -> None:
        name = names.name_of("schedule", recurring.name, Unmeant)
        if Schedule.objects.using(self.database).filter(pk=name).exists():
            message = f"there is a schedule {name!r} already"
            raise Unmeant(message)
        if recurring.queue is not None:
            task = task.using(queue_name=recurring.queue)
        backend: PgQueueBackend = task.get_backend()
        call = {"args": recurring.args, "kwargs": recurring.kwargs}
        check_call(task.func, recurring.args, recurring.kwargs, takes_context=task.takes_context)
        content.encode(call, max_bytes=backend.settings.max_content_bytes)
        Schedule.objects.using(self.database).create(
            name=name,
            task=task.module_path,
            content=call,
            cron=recurring.rule.cron,
            interval_ms=recurring.rule.interval_ms,
            timezone=recurring.rule.timezone,
            next_at=times.not_before(first_time(recurring, self.now)),
            queue=task.queue_name,
            priority=task.priority,
            max_attempts=backend.max_attempts(task),
        )
        functions.worker_wake_resting(self.connection, task.queue_name)


def first_time(recurring: Recurring, now: datetime) -> datetime:
    """Returns the first time of the rule that is not past, and not before it was to begin."""
    begin = times.aware(recurring.not_before or now)
    return recurring.rule.first_after(max(times.aware(now), begin - times.MICROSECOND))
