"""A screen that shows the shop's announcements: a program that listens to a queue of its own."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from example_project.shop.announcements import SCREENS, show


class Command(BaseCommand):
    help = "Shows the announcements, until Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=SCREENS)
        parser.add_argument("--lines", type=int, metavar="N", help="Stop after this number of announcements.")

    def handle(self, *_args: Any, name: str, lines: int | None = None, **_options: Any) -> None:
        show(name, self.stdout.write, lines=lines)
