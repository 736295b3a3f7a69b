"""``manage.py qdoctor``: shows problems of the queue and its database, with their remedies."""

from __future__ import annotations

import json
import shutil
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError, no_translations
from django.db import NotSupportedError, OperationalError

from django_pgqueue.management import databases
from django_pgqueue.management.terminal import progress
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.management.terminal.text import printable
from django_pgqueue.monitoring import setup
from django_pgqueue.monitoring.doctor import Finding, Severity, Subject, examination, examine

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

NEVER = "never"
CAN_NOT_ASK = 2
WIDEST, NARROWEST = 100, 40
MAX_ALIKE = 5


class Command(PrintingCommand):
    help = (
        "Checks the queue, its database and the server, and prints each problem with its remedy. The command changes "
        "nothing. It exits with 1 when it found an error (see --fail-level), and with 2 when it could not reach the "
        "database."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 -- Django's way to say it: qdoctor finds the same

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--setup",
            action="store_true",
            help="Instead, go through the steps from the settings to the first job, up to the first that is missing.",
        )
        parser.add_argument(
            "--json", action="store_true", help="One JSON object for each database, on a line of its own."
        )
        parser.add_argument(
            "--fail-level",
            choices=[*(str(each) for each in Severity), NEVER],
            default=str(Severity.ERROR),
            help="Exit with 1 from this severity on (default: error).",
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="Only this database (default: all databases with a queue)."
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        if options["setup"]:
            if options["json"] or options["database"]:
                message = "--setup looks at all backends, and prints text: it goes with neither --database nor --json."
                raise CommandError(message, returncode=CAN_NOT_ASK)
            self._walk()
            return
        asked = databases.asked(options["database"], returncode=CAN_NOT_ASK)
        if not asked:
            message = "TASKS names no queue in any database: manage.py qdoctor --setup says what is missing."
            raise CommandError(message, returncode=CAN_NOT_ASK)
        found: list[Finding] = []
        for database in asked:
            its = self._examined(database)
            found += its
            self._tell(database, its, options)
        level = options["fail_level"]
        if level != NEVER and any(finding.severity >= Severity[level.upper()] for finding in found):
            raise SystemExit(1)

    def _walk(self) -> None:
        """Prints each step.  A missing one ends the command with 1."""
        for step in setup.walk():
            mark = self.style.SUCCESS("done   ") if step.is_done else self.style.ERROR("missing")
            found = " ".join(step.found.split())  # libpq says in several lines why it cannot connect
            self.stdout.write(f"{mark} {printable(step.title)}: {printable(found)}")
            if step.remedy is not None:
                self.stdout.write(f"        {printable(step.remedy)}")
                raise SystemExit(1)
        self.stdout.write("Enqueue a task: it runs at once. manage.py qstatus shows the queue.")

    def _examined(self, database: str) -> list[Finding]:
        try:
            databases.reach(database, returncode=CAN_NOT_ASK)
        except CommandError as error:
            if not isinstance(error.__cause__, NotSupportedError):  # an old server is a finding
                raise
        try:
            with progress.bar("looking", len(examination.CHECKS)) as advance:
                return examine(
                    Subject(database), progress=lambda title: advance(1, f"checking {title}") if advance else None
                )
        except OperationalError as error:
            raise CommandError(databases.unanswered(database, error), returncode=CAN_NOT_ASK) from error

    def _tell(self, database: str, found: list[Finding], options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(document(database, found), default=str))
            return
        worst = max((finding.severity for finding in found), default=None)
        if worst is None:
            self.stdout.write(self.style.SUCCESS(f"{database}: nothing is wrong ({len(examination.CHECKS)} checks)."))
            return
        numbers = [(sum(finding.severity is each for finding in found), each) for each in reversed(Severity)]
        summary = ", ".join(f"{count} {severity}{'s' if count > 1 else ''}" for count, severity in numbers if count)
        self.stdout.write(f"{database}: {summary}")
        for _, alike in groupby(sorted(found, key=order), key=order):
            self._tell_alike(list(alike))

    def _tell_alike(self, alike: list[Finding]) -> None:
        """Prints findings that differ only in their values, with their remedy once."""
        colour = {
            Severity.ERROR: self.style.ERROR,
            Severity.WARNING: self.style.WARNING,
            Severity.INFO: self.style.NOTICE,
        }
        width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
        first, count = alike[0], len(alike)
        heading = f"{colour[first.severity](str(first.severity).upper())} {first.name}"
        self.stdout.write()
        self.stdout.write(heading if count == 1 else f"{heading} ({count})")
        for finding in alike[:MAX_ALIKE]:
            self._write(finding.found, width)
            if count > 1:
                self._write_command(finding)
        if count > MAX_ALIKE:
            self._write(f"… and {count - MAX_ALIKE} more, which --json prints.", width)
        self._write(first.remedy, width)
        if count == 1:
            self._write_command(first)

    def _write(self, words: str, width: int) -> None:
        text = textwrap.fill(
            printable(words, getattr(self.stdout, "encoding", None)),
            width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.stdout.write(text)

    def _write_command(self, finding: Finding) -> None:
        if finding.command:
            shell = "psql=>" if finding.command.rstrip().endswith(";") or "; " in finding.command else "$"
            self.stdout.write(f"  {shell} {printable(finding.command)}")  # on one line, to be copied


def order(finding: Finding) -> tuple[int, str, str]:
    return -finding.severity, finding.name, finding.remedy


def document(database: str, found: list[Finding]) -> dict[str, Any]:
    return {
        "database": database,
        "checks": len(examination.CHECKS),
        "findings": [
            {
                "name": finding.name,
                "severity": str(finding.severity),
                "found": finding.found,
                "remedy": finding.remedy,
                "command": finding.command,
                "values": finding.values,
            }
            for finding in found
        ],
    }
