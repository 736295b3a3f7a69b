"""``manage.py qstatus``: shows waiting, running and failed messages, workers and throughput."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, no_translations
from django.db import OperationalError, connections

from django_pgqueue import functions
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.distribution import install_command
from django_pgqueue.management import databases
from django_pgqueue.management.terminal import status
from django_pgqueue.management.terminal.output import standard_output
from django_pgqueue.monitoring import overview
from django_pgqueue.monitoring.overview import recent
from django_pgqueue.monitoring.overview.limits import STATEMENT_TIMEOUT
from django_pgqueue.values import limits, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import CommandParser

    from django_pgqueue.monitoring.overview import Overview
    from django_pgqueue.monitoring.overview.recent import Recent

INTERVAL_SECONDS = 2.0
MIN_SECONDS = 0.1
MAX_SECONDS = 86_400


class Command(BaseCommand):
    help = (
        "Shows the waiting, running and failed messages of each queue, its rates and the workers: a live table on a "
        f"terminal (with rich: {install_command('cli')}), plain text elsewhere. The cost of its queries is "
        "bounded, however many rows the tables have."
    )

    def __init__(self, stdout: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(stdout or standard_output(), *args, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="Print the status once, and exit.")
        parser.add_argument(
            "--interval", type=float, metavar="S",
            help=f"Seconds between two queries (default: {INTERVAL_SECONDS:g}; without it, the command prints into a "
            "pipe only once).",
        )  # fmt: skip
        parser.add_argument(
            "--json", action="store_true", help="One JSON object for each query, each on a line of its own."
        )
        parser.add_argument(
            "--tasks", action="store_true",
            help="Show also the tasks of the last hour and of the last day: how many attempts ended, and how long they "
            "waited and ran.",
        )  # fmt: skip
        parser.add_argument("--queue", action="append", metavar="a,b", help="Only these queues.")
        parser.add_argument(
            "--database", metavar="ALIAS", help="Alias of the database (default: that of the default backend)."
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        databases.asked(options["database"])
        database = options["database"] or default_database()
        queues = sorted({name.strip() for text in options["queue"] or () for name in text.split(",") if name.strip()})
        if options["queue"] and not queues:  # as of a shell variable that is not set
            message = f"--queue {options['queue'][0]!r} names no queue."
            raise CommandError(message)
        if unreadable := [queue for queue in queues if not names.is_text(queue, max_bytes=limits.MAX_NAME_BYTES)]:
            message = f"--queue {unreadable[0]!r} names no queue."
            raise CommandError(message)
        interval = options["interval"]
        if interval is not None and not MIN_SECONDS <= interval <= MAX_SECONDS:
            message = f"--interval {interval:g} is not a number of seconds from {MIN_SECONDS:g} to {MAX_SECONDS:,}."
            raise CommandError(message)
        on_terminal = self.stdout.isatty() and os.environ.get("TERM") != "dumb"
        if (
            on_terminal
            and not options["tasks"]
            and not options["once"]
            and not options["json"]
            and self._live(database, queues, options)
        ):
            return
        try:
            self._print(database, queues, options, repeat=interval is not None and not options["once"])
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # of ``| head``: the reader has gone, and Python's flush at exit must not fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _live(self, database: str, queues: list[str], options: dict[str, Any]) -> bool:
        try:
            from django_pgqueue.management.terminal import live  # noqa: PLC0415 -- rich is an extra
        except ImportError:
            self.stderr.write(f"A live table needs rich: {install_command('cli')}. This is plain text:")
            return False
        taken(database, queues)  # a problem at the start is an error
        color = False if options["no_color"] else True if options["force_color"] else None

        def take() -> Overview | str:
            try:
                return taken(database, queues)
            except CommandError as error:
                return f"{error} Trying again."

        live.show(take, database=database, interval=options["interval"] or INTERVAL_SECONDS, color=color)
        return True

    def _print(self, database: str, queues: list[str], options: dict[str, Any], *, repeat: bool) -> None:
        width = shutil.get_terminal_size().columns if self.stdout.isatty() else None
        encoding = getattr(self.stdout, "encoding", None)
        while True:
            found = taken(database, queues)
            tasks = of_tasks(database, queues) if options["tasks"] else {}
            if options["json"]:
                document = status.document(found, database=database)
                document |= {f"tasks_last_{name}": status.recent_tasks(rows) for name, rows in tasks.items()}
                self.stdout.write(json.dumps(document))
            else:
                lines = list(status.lines(found, database=database, width=width))
                for name, rows in tasks.items():
                    lines += status.tasks(rows, f"Tasks of the last {name}")
                for line in lines:
                    self.stdout.write(line.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8"))
            self.stdout.flush()
            if not repeat:
                return
            time.sleep(options["interval"])
            if not options["json"]:
                self.stdout.write()


def taken(database: str, queues: list[str]) -> Overview:
    with looking(database):
        return overview.taken(database, queues=queues or None)


def of_tasks(database: str, queues: list[str]) -> dict[str, list[Recent]]:
    with looking(database):
        now = functions.now(connections[database])
        return {
            name: recent.tasks(now, within=within, named=queues or None, using=database)
            for name, within in (("hour", recent.HOUR), ("day", recent.DAY))
        }


@contextmanager
def looking(database: str) -> Iterator[None]:
    with databases.with_its_queue(database):
        try:
            with overview.bounded(database):
                yield
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            message = f"The query took longer than {STATEMENT_TIMEOUT.rstrip('s')} seconds and was cancelled."
            raise CommandError(message) from error
