"""``manage.py qworkers``: lists the workers, and gives orders to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError, no_translations
from django.db import connections

from django_pgqueue import control, functions
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.management.terminal.text import person, printable, table
from django_pgqueue.models import Worker
from django_pgqueue.monitoring.overview import bounded
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.monitoring.overview.coverage import MAX_WORKERS, is_silent, silence
from django_pgqueue.monitoring.overview.formatting import span
from django_pgqueue.monitoring.overview.held import HeldCounts

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from django.core.management.base import CommandParser


class Command(PrintingCommand):
    help = (
        "Lists the workers. With --pause, --resume, --stop or --slots it gives an order to one or more of them: they "
        "follow it within seconds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        order = parser.add_mutually_exclusive_group()
        order.add_argument(
            "--pause", action="store_true", help="They claim nothing until --resume; running jobs go on."
        )
        order.add_argument("--resume", action="store_true", help="They go on.")
        order.add_argument("--stop", action="store_true", help="They end what runs, within their grace, and leave.")
        order.add_argument("--slots", type=int, metavar="N", help="They run N jobs at a time.")
        parser.add_argument("workers", nargs="*", metavar="worker", help="The ids of the workers, from the list.")
        parser.add_argument("--by", help="Who gives the order (default: the user of the operating system).")
        parser.add_argument(
            "--database", metavar="ALIAS", help="Alias of the database (default: that of the default backend)."
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        databases.asked(options["database"])
        database = options["database"] or default_database()
        order = next((name for name in ("pause", "resume", "stop") if options[name]), None)
        if options["slots"] is not None:
            order = "slots"
        if order is None and options["workers"]:
            message = "Say what the workers shall do: --pause, --resume, --stop or --slots N."
            raise CommandError(message)
        with databases.with_its_queue(database):
            if order is None:
                for line in lines(database):
                    self.stdout.write(line)
            else:
                self._order(order, database, options)

    def _order(self, order: str, database: str, options: dict[str, Any]) -> None:
        if not options["workers"]:
            message = f"Name the workers that shall follow --{order}: manage.py qworkers lists their ids."
            raise CommandError(message)
        gone = []
        for worker in options["workers"]:
            try:
                found = control.order_worker(
                    worker, order, slots=options["slots"], by=options["by"] or person(), database=database
                )
            except PgQueueError as error:
                raise CommandError(str(error)) from error
            if found:
                self.stdout.write(f"Ordered: {order}, {printable(worker)}.")
            else:
                gone.append(printable(worker))
        if gone:
            message = f"No such worker lives, so nothing was ordered: {', '.join(gone)}. manage.py qworkers lists them."
            raise CommandError(message)


def lines(database: str) -> Iterator[str]:
    with bounded(database):
        now = functions.now(connections[database])
        found = list(
            Worker.objects.using(database)
            .filter(tasks=True)
            .defer("seen_at", "started_at")
            .annotate(seen=Moment("seen_at"))
            .order_by("-seen_at")[: MAX_WORKERS + 1]
        )
        held = HeldCounts.at(now, using=database)
    if not found:
        yield "There is no worker."
        return
    yield from table(
        [
            ["Worker", "State", "Slots in use", "Version", "Queues", "Seen", "Ordered by"],
            *(
                [
                    printable(one.id), state(one, held, now), f"{min(held.by(one.id), one.slots)} of {one.slots}",
                    printable(one.version or "-"),
                    "all" if one.queues is None else printable(", ".join(map(str, one.queues)))[:60],
                    f"{span(silence(one.seen, now))} ago",
                    printable(one.ordered_by or "-"),
                ]
                for one in sorted(found[:MAX_WORKERS], key=lambda one: (one.hostname, one.id))
            ),
        ],
        left=(0, 1, 2, 3, 4, 5, 6),
    )  # fmt: skip
    if len(found) > MAX_WORKERS:
        yield "There are more workers than these, which were seen longer ago."


def state(worker: Worker, held: HeldCounts, now: dt.datetime) -> str:
    if is_silent(worker.seen, worker.silent_until, now):  # type: ignore[attr-defined]
        return "not seen"
    if worker.ordered:
        return "paused" if worker.ordered == "pause" else "stopping"
    return "busy" if held.is_busy(worker.id, worker.asleep_until, now) else "idle"
