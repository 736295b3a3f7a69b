"""``manage.py qpipeline``: the history as data, and data as jobs, on Spark."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.db import connections
from psycopg.conninfo import make_conninfo

from django_pgqueue.backend import lookup
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS
from django_pgqueue.consumer.connection import of_libpq
from django_pgqueue.distribution import install_command
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.spark import arguments
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.progress import Lines, Progress

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from django_pgqueue.backend.pgqueue import PgQueueBackend

VARIABLE = "PGQUEUE_SPARK_URL"
"""This command puts the URL of the database here, for Spark's processes on this machine."""


class Command(PrintingCommand):
    help = (
        "Exports finished attempts to a lake of Delta tables, follows them, reports on them, enqueues them again, "
        "and predicts the waiting times with other workers. "
        f"Needs the extra spark: {install_command('spark')}."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_arguments(parser, common=common)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        try:
            from django_pgqueue.spark import session, steps  # noqa: PLC0415 -- an extra
        except ImportError as error:
            raise CommandError(arguments.missing(error)) from error
        backend = queue(options["backend"])
        asked = argparse.Namespace(**{**options, "lake": lake(options["lake"], backend)})
        if asked.step == "export" and asked.keep_days is None:
            asked.keep_days = backend.settings.history_days
        publish(backend.settings.database)
        given = {"urlVariable": VARIABLE}
        progress = Lines(options["stderr"] or sys.stderr) if options["verbosity"] else Progress()
        try:
            steps.check_address(asked, given)
            progress.step("starting Spark")
            spark = session.start_here(f"qpipeline {asked.step}", master=asked.master, configuration=dict(asked.conf))
            steps.run(spark, asked, options=given, say=self.stdout.write, progress=progress)
        except SparkQueueError as error:
            raise CommandError(str(error), returncode=error.exit_code) from error
        except KeyboardInterrupt as error:
            raise CommandError(arguments.INTERRUPTED, returncode=arguments.INTERRUPTED_CODE) from error


def common(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--lake",
        type=arguments.utf8,
        help="Folder of the lake, or its URL (default: LAKE in the OPTIONS of the backend).",
    )
    step.add_argument(
        "--backend",
        default=DEFAULT_TASK_BACKEND_ALIAS,
        help="Alias in TASKS of the backend of the queue (default: default).",
    )
    # Django passes these to a command, and not to its subcommands.
    step.set_defaults(stdout=None, stderr=None)


def queue(alias: str) -> PgQueueBackend:
    ours = lookup.pgqueue_backends()
    if alias not in ours:
        message = f"TASKS has no backend {alias!r} of django_pgqueue. It has {', '.join(ours) or 'none'}."
        raise CommandError(message)
    return ours[alias]


def lake(given: str | None, backend: PgQueueBackend) -> str:
    found = given or backend.settings.lake
    if not found:
        message = "The lake is not set. Use --lake FOLDER, or set LAKE in the OPTIONS of the backend in TASKS."
        raise CommandError(message)
    return str(found)


def publish(database: str) -> None:
    """Gives the database's URL to this process and those that it starts: not in a plan, nor in an argument."""
    parameters = of_libpq(connections[database].get_connection_params())
    if role := connections[database].settings_dict["OPTIONS"].get("assume_role"):
        escaped = re.sub(r"([\\ ])", r"\\\1", role)
        others = parameters.get("options") or os.environ.get("PGOPTIONS", "")
        parameters["options"] = f"{others} -c role={escaped}"
    os.environ[VARIABLE] = make_conninfo(**parameters)
