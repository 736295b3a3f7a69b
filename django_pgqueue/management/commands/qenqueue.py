"""``manage.py qenqueue``: enqueues a task once, or once for each line of a file."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime, parse_duration

from django_pgqueue.backend.bulk import Call, enqueue_many
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import TaskException
from django_pgqueue.exceptions import InvalidMessage, PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.management.terminal import progress
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from django.core.management.base import CommandParser

KEYS = ("args", "kwargs", "priority", "run_after", "queue", "channel")


class Command(PrintingCommand):
    help = (
        "Enqueues a task, all in one transaction. Each line of the file is one job: a JSON array (positional "
        f"arguments) or an object with some of the keys {', '.join(KEYS)}. run_after is an ISO 8601 time or duration."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", help="Dotted path of the task, such as shop.tasks.send_receipt.")
        parser.add_argument("--from", dest="file", metavar="FILE", help="JSON lines, or - for standard input.")
        parser.add_argument("--args", dest="positional", metavar="JSON", help="Positional arguments of a single job.")
        parser.add_argument("--kwargs", dest="named", metavar="JSON", help="Keyword arguments of a single job.")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        if options["file"] is not None and (options["positional"], options["named"]) != (None, None):
            message = (
                "--from enqueues what stands in the file, and --args and --kwargs a single job: use only one of them."
            )
            raise CommandError(message)
        registry.autodiscover()
        try:
            task = registry.find(options["task"])
            with databases.with_its_queue(database_of(task)):
                if options["file"] is None:
                    count = enqueue_many(task, [single(options["positional"], options["named"])])
                else:
                    count = self._enqueue_file(task, options["file"])
        except (PgQueueError, TaskException, TypeError, ValueError) as error:
            message = f"Nothing was enqueued. {error}"
            raise CommandError(message) from error
        if options["verbosity"]:
            self.stdout.write(self.style.SUCCESS(f"enqueued {count:,} x {options['task']}"))

    def _enqueue_file(self, task: Any, name: str) -> int:
        with ExitStack() as stack:
            try:
                file = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
                size = None if name == "-" else Path(name).stat().st_size
            except OSError as error:
                message = f"The file {name!r} cannot be read: {error.strerror}."
                raise InvalidMessage(message) from error
            advance = stack.enter_context(progress.bar("enqueuing", size))
            return enqueue_many(task, calls(file, advance))


def database_of(task: Any) -> str:
    backend = task.get_backend()
    return backend.settings.database if isinstance(backend, PgQueueBackend) else default_database()


def calls(file: Iterable[bytes], advance: Callable[[int, str | None], None] | None) -> Iterator[Call]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield call(decoded(line, number), f"line {number}")
        if advance is not None:
            advance(len(line), None)


def decoded(line: bytes, number: int) -> str:
    try:
        # A byte order mark, which some editors write, is not part of the text.
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        message = f"line {number} is not UTF-8: {error.reason}."
        raise InvalidMessage(message) from error


def call(line: str, where: str) -> Call:
    parsed_line = parsed(line, where)
    if isinstance(parsed_line, list):
        return Call(args=parsed_line, where=where)
    if not isinstance(parsed_line, dict):
        message = f"{where} is neither a JSON array nor an object: {line.strip()[:80]}"
        raise InvalidMessage(message)
    if unknown := sorted(set(parsed_line) - set(KEYS)):
        message = f"{where} has the unknown key {unknown[0]!r}. The keys are {', '.join(KEYS)}."
        raise InvalidMessage(message)
    return Call(
        args=parsed_line.get("args", ()),
        kwargs=parsed_line.get("kwargs", {}),
        priority=parsed_line.get("priority"),
        run_after=moment(parsed_line.get("run_after"), where),
        queue_name=parsed_line.get("queue"),
        channel=parsed_line.get("channel"),
        where=where,
    )


def parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{where} is not JSON: {error}."
        raise InvalidMessage(message) from error


def moment(text: str | None, where: str) -> Any:
    if text is None:
        return None
    try:
        found = parse_datetime(text) or parse_duration(text)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None:
        message = f"{where}: run_after {text!r} is neither an ISO 8601 time nor a duration."
        raise InvalidMessage(message)
    return found


def single(args: str | None, kwargs: str | None) -> Call:
    return Call(
        args=() if args is None else parsed(args, "--args"),
        kwargs={} if kwargs is None else parsed(kwargs, "--kwargs"),
        where="--args and --kwargs",
    )
