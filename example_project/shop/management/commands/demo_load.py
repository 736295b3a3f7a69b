"""Fill the demo's queue with a large load, and compare what its pages and commands say of it with the truth."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from example_project.shop.load import check, fill, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import CommandParser

LIMITS = {"messages": 10_000_000, "attempts": 100_000_000, "queues": 1_000, "channels": 100_000}
SMALL = {"messages": 30_000, "attempts": 100_000, "queues": 40, "channels": 100}


class Command(BaseCommand):
    help = (
        "Makes many messages and finished attempts, of all states and with many errors, in queues, channels and "
        "workers whose names begin with load-. A second call makes them anew. Nothing else in the queue is changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for name, number in SMALL.items():
            parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=f"Default: {number}.")
        parser.add_argument(
            "--unpaused", action="store_true",
            help="Do not pause the queues: workers run the messages, and their tasks are those of the shop.",
        )  # fmt: skip
        parser.add_argument("--clear", action="store_true", help="Only remove the load.")
        parser.add_argument(
            "--check", action="store_true",
            help="Make nothing: show the true numbers beside those of the overview, qstatus, qdoctor and /metrics. "
            "Ends with 1 if one is wrong.",
        )  # fmt: skip
        parser.add_argument("--pages", action="store_true", help="Make nothing: measure the pages of the admin.")
        parser.add_argument("--times", type=int, default=5, metavar="N", help="Requests for each page (default: 5).")
        parser.add_argument(
            "--into", metavar="DATABASE",
            help="The name of the database, if it is not the demo's own: say which one is meant.",
        )  # fmt: skip

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["check"] or options["pages"]:
            self.look(options)
            return
        self.ask_where(options["into"])
        for name, most in LIMITS.items():
            if not 1 <= options[name] <= most:
                problem = f"--{name} {options[name]} is not a number from 1 to {most:,}."
                raise CommandError(problem)
        if options["clear"]:
            fill.clear(self.stdout.write)
            return
        load = fill.Load(**{name: options[name] for name in LIMITS}, paused=not options["unpaused"])
        fill.make(load, self.stdout.write)
        self.stdout.write("Look at the admin, at qstatus and at qdoctor. --check compares them with the truth.")

    def ask_where(self, named: str | None) -> None:
        """Refuse to fill a database that is not the demo's own, unless it is named."""
        is_own = settings.SETTINGS_MODULE == "example_project.settings" and not os.environ.get("DATABASE_URL")
        name = connection.settings_dict["NAME"]
        if named is None and not is_own:
            problem = f"The database {name!r} is not the demo's own. If you mean it, add: --into {name}"
            raise CommandError(problem)
        if named not in {None, name}:
            problem = f"--into {named} is not the database: it is {name!r}."
            raise CommandError(problem)

    def look(self, options: dict[str, Any]) -> None:
        found = check.compared() if options["check"] else []
        self.tell(check.lines(found, queues=8) if options["check"] else iter(()))
        self.tell(pages.lines(options["times"]) if options["pages"] else iter(()))
        if check.wrong(found):
            raise SystemExit(1)

    def tell(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.stdout.write(line)
