"""``manage.py qedit``: an action for everything that matches a filter."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError, no_translations
from django.db import connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime, parse_duration

from django_pgqueue import control, functions
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import databases
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.management.terminal.status import NO_WORKER
from django_pgqueue.management.terminal.text import person
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.values.edit_filter import Filter, parameters
from django_pgqueue.values.names import name_of
from django_pgqueue.values.times import aware

if TYPE_CHECKING:
    import datetime as dt

    from django.core.management.base import CommandParser

    from django_pgqueue.functions import EditState

LOOK_SECONDS = 0.5
FLAGS = {"run_now": "--run-now", "cancel": "--cancel", "delete": "--delete", "enqueue_again": "--enqueue-again"}
TIMES = [field.name for field in dataclasses.fields(Filter) if field.type == "dt.datetime | None"]
TEXTS = [field.name for field in dataclasses.fields(Filter) if field.type == "str | None"]


class Command(PrintingCommand):
    help = (
        "Runs now, postpones, cancels, deletes, moves, prioritises or enqueues again everything that matches. "
        "It counts first, and changes something only with --yes; then workers do it, and the command shows how far "
        "they are. Ctrl-C leaves the edit to them: --stop stops it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_mutually_exclusive_group(required=True)
        for action, flag in FLAGS.items():
            actions.add_argument(flag, dest="action", action="store_const", const=action)
        actions.add_argument("--postpone", metavar="WHEN", help="A time, or a duration from now such as PT2H.")
        actions.add_argument("--move", metavar="QUEUE")
        actions.add_argument("--prioritise", metavar="PRIORITY", type=int, help="From -100 to 100.")
        actions.add_argument("--stop", metavar="EDIT", type=int, help="Stops an edit.")
        actions.add_argument("--resume", metavar="EDIT", type=int, help="Lets a stopped edit go on.")
        actions.add_argument("--show", metavar="EDIT", type=int, help="Shows how far an edit is.")
        for name in TEXTS:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="TEXT")
        for name in TIMES:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="TIME")
        for name in ("priority_from", "priority_until"):
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="NUMBER", type=int)
        parser.add_argument("--argument", metavar="JSON", help="A value anywhere in the arguments.")
        parser.add_argument("--raw", action="store_true", default=None, help="Raw messages only.")
        parser.add_argument("--database", help="The alias of a database, where several hold a queue.")
        parser.add_argument("--yes", action="store_true", help="Do it, and do not only count.")
        parser.add_argument("--no-wait", action="store_true", help="Do not wait for its end.")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        known = databases.asked(options["database"])
        if len(known) != 1:
            message = f"TASKS names queues in {', '.join(known) or 'no database'}: choose one with --database."
            raise CommandError(message)
        try:
            with databases.with_its_queue(known[0]):
                self._edit(known[0], options)
        except PgQueueError as error:
            raise CommandError(error) from error

    def _edit(self, database: str, options: dict[str, Any]) -> None:
        if (number := options["stop"]) is not None and not control.stop_edit(number, database=database):
            message = f"Edit {number} cannot be stopped: it has ended, was stopped before, or does not exist."
            raise CommandError(message)
        if (number := options["resume"]) is not None and not control.resume_edit(number, database=database):
            message = f"Edit {number} cannot be resumed: it has ended, is not stopped, or does not exist."
            raise CommandError(message)
        existing = next((options[name] for name in ("stop", "resume", "show") if options[name] is not None), None)
        if existing is not None:
            self.stdout.write(told(control.edit_state(existing, database=database)))
            return
        action, how = asked(options)
        given: dict[str, Any] = {name: options[name] for name in (*TEXTS, "priority_from", "priority_until", "raw")}
        given |= {name: moment(options[name], name) for name in TIMES}
        which = Filter(**given, argument=value(options["argument"]))
        count = control.count_edit(action, which, database=database).matches
        noun = "ended message" if action == "enqueue_again" else "message"
        self.stdout.write(f"1 {noun} matches now." if count == 1 else f"{count:,} {noun}s match now.")
        if not options["yes"]:
            self.stdout.write("Nothing was changed: --yes does it.")
            return
        edit = control.edit(action, which, **how, by=f"{person()} (qedit)", database=database)
        self.stdout.write(
            f"Edit {edit}: {action.replace('_', ' ')}. Workers do it; --show {edit} tells how far they are."
        )
        there = workers(functions.now(connections[database]), using=database)
        if not there.busy + there.idle:
            self.stdout.write(NO_WORKER if options["no_wait"] else f"{NO_WORKER}. Ctrl-C ends this wait, not the edit.")
        if not options["no_wait"]:
            self._wait(edit, database)

    def _wait(self, edit: int, database: str) -> None:
        try:
            while not ((state := control.edit_state(edit, database=database)).finished_at or state.stopped_at):
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stdout.write(f"Edit {edit} goes on. --stop {edit} stops it.")
        else:
            self.stdout.write(told(state))


def asked(options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the action and its parameter, which is checked before anything is counted."""
    action: str = next((name for name in ("postpone", "move", "prioritise") if options[name] is not None), "")
    queue = None if options["move"] is None else name_of("queue", options["move"])
    how = {"run_at": moment(options["postpone"], "--postpone"), "queue": queue, "priority": options["prioritise"]}
    parameters(action or options["action"], **how)
    return action or options["action"], how


def moment(text: str | None, name: str) -> dt.datetime | None:
    """Returns a time, given as such or as a duration from now."""
    if text is None:
        return None
    try:
        if (found := parse_datetime(text)) is not None:
            return aware(found)
        # Django reads an empty text, as of a shell variable that is not set, as no time at all: now.
        if text and (span := parse_duration(text)) is not None:
            return timezone.now() + span
    except (ValueError, OverflowError):
        pass
    message = f"{name} {text!r} is neither an ISO 8601 time nor a duration such as PT2H."
    raise CommandError(message)


def value(text: str | None) -> Any:
    """Returns a value of JSON; what is no JSON is a text."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if found is None:  # in a Filter it would mean: whatever the arguments are
        message = "--argument null is no value to look for: a text, a number, or true or false."
        raise CommandError(message)
    return found


def told(state: EditState) -> str:
    """Returns the sentence about an edit that has ended, was stopped, or goes on."""
    if state.error is not None:
        how = f"ended with an error: {state.error}"
    elif state.finished_at is not None:
        how = "finished"
    else:
        how = f"{'stopped' if state.stopped_at else 'at'} {state.fraction:.0%}"
    counts = [f"{state.done:,} done"]
    counts += [f"{state.asked:,} asked to stop"] if state.asked else []
    counts += [f"{state.awaiting:,} left out, because they wait for others"] if state.awaiting else []
    counts += [f"{state.skipped:,} not changed, because they run or need no change"] if state.skipped else []
    return f"Edit {state.id} {how}: {', '.join(counts)}."
