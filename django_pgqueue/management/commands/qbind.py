"""``manage.py qbind``: writes the declared exchanges and bindings into the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.routing.sync import changes, synchronise
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

    from django_pgqueue.routing.sync import Change


class Command(BaseCommand):
    help = (
        "Brings the exchanges and bindings that the code declares (@subscribe, declare_binding, declare_exchange) into "
        "the database. Run it at each deployment: it changes what differs, and says so."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        look = parser.add_mutually_exclusive_group()
        look.add_argument("--dry-run", action="store_true", help="Say what would be done, and do nothing.")
        look.add_argument(
            "--check", action="store_true", help="The same, and exit with 1 when there is something to do."
        )
        parser.add_argument(
            "--prune", action="store_true", help="Also take away what was declared once and is not any more."
        )
        parser.add_argument("--database", metavar="ALIAS", help="Only this one (default: all that hold a queue).")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        registry.autodiscover()
        to_do = [self._handle(database, options) for database in databases.asked(options["database"])]
        if options["check"] and any(to_do):
            message = "The database does not have what the code declares: run manage.py qbind."
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
            self.stdout.write(f"{database}: {change.what} is declared no more (--prune takes it away)")
        if not done and not left_over:
            self.stdout.write(f"{database}: nothing to do")
