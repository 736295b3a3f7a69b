"""``manage.py qbind``: writes the declared exchanges and bindings into the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.routing.sync import changes, synchronise
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from django_pgqueue.routing.sync import Change


class Command(PrintingCommand):
    help = (
        "Writes the exchanges and bindings that the code declares (@subscribe, declare_binding, declare_exchange) "
        "into the database. Run it at each deployment: it changes and prints the differences."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        look = parser.add_mutually_exclusive_group()
        look.add_argument("--dry-run", action="store_true", help="Print the differences, and change nothing.")
        look.add_argument("--check", action="store_true", help="The same, and exit with 1 if there are differences.")
        parser.add_argument(
            "--prune", action="store_true", help="Also delete exchanges and bindings that the code no longer declares."
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="Only this database (default: all databases with a queue)."
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        registry.autodiscover()
        to_do = [self._handle(database, options) for database in databases.asked(options["database"])]
        if options["check"] and any(to_do):
            message = "The database differs from the declarations in the code: run manage.py qbind."
            raise CommandError(message)

    def _handle(self, database: str, options: dict[str, Any]) -> bool:
        """Returns whether there was anything to change."""
        prune = options["prune"]
        try:
            with databases.with_its_queue(database):
                found = changes(database)
                done = [change for change in found if prune or not change.is_left_over]
                if not (options["dry_run"] or options["check"]):
                    done = synchronise(database, prune=prune)
        except PgQueueError as error:
            message = f"Nothing was changed. {error}"
            raise CommandError(message) from error
        if options["verbosity"]:
            self._tell(database, done, [change for change in found if change not in done and change.is_left_over])
        return bool(done)

    def _tell(self, database: str, done: list[Change], left_over: list[Change]) -> None:
        for change in done:
            self.stdout.write(f"{database}: {change}")
        for change in left_over:
            self.stdout.write(f"{database}: {change.what} is no longer declared (--prune deletes it)")
        if not done and not left_over:
            self.stdout.write(f"{database}: nothing to do")
