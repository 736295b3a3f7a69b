"""The command line: ``manage.py qpipeline`` and ``pgqueue-spark`` have the same.

Imports no Spark, so that help and errors are quick.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
from typing import TYPE_CHECKING, Any

from django_pgqueue.distribution import install_command

if TYPE_CHECKING:
    from collections.abc import Callable


INTERRUPTED = "Interrupted. The lake has no partial results: the next run repeats the work that had not become visible."
INTERRUPTED_CODE = 130
"""The exit code of shells for a program that Ctrl-C has ended."""


def missing(error: ImportError) -> str:
    return f"The pipeline runs on Spark, and {error.name} is not installed: {install_command('spark')}"


def add_arguments(parser: argparse.ArgumentParser, *, common: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds all steps.  ``common`` adds the command's own arguments to each of them."""
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    for name, words, add in (
        ("export", "Adds the attempts that were finished since the last run to the lake, once.", export),
        ("follow", "The same continuously, until Ctrl-C.", follow),
        ("check", "Looks for each file of the lake.", lambda _: None),
        ("convert", "Turns a lake of an earlier release into Delta tables.", lambda _: None),
        ("erase", "Deletes attempts from the lake that meet a condition, and the files that had them.", condition),
        ("forget", "Tells PostgreSQL that a lake is given up, so that retention does not wait for it.", lambda _: None),
        ("report", "Writes hourly reports to the lake and to PostgreSQL, where the admin shows them.", report),
        ("replay", "Enqueues finished messages again that meet a condition.", replay),
        ("whatif", "Simulates other numbers of workers, other limits and other loads.", whatif),
    ):
        step = steps.add_parser(name, help=words, description=words)
        step.add_argument(
            "--master", type=utf8, help="Spark's master (default: local[*], or the master of spark-submit)."
        )
        step.add_argument(
            "--conf",
            action="append",
            default=[],
            type=pair,
            metavar="NAME=VALUE",
            help="A setting of Spark, such as spark.executor.memory=2g. Can be repeated.",
        )
        step.add_argument(
            "--option",
            action="append",
            default=[],
            type=pair,
            metavar="NAME=VALUE",
            help="An option of the data source, such as maxConnections=4. Can be repeated.",
        )
        common(step)
        add(step)


def export(step: argparse.ArgumentParser) -> None:
    pieces(step)
    step.add_argument(
        "--drop-exported",
        action="store_true",
        help="Afterwards drop the days of the history that the lake contains, if both have the same rows.",
    )
    step.add_argument(
        "--adopt",
        action="store_true",
        help="Go on with a database that was renamed, upgraded or restored, if it has attempts that the lake has too.",
    )
    step.add_argument(
        "--keep-days", type=positive, help="Number of whole days that are not dropped (default: HISTORY_DAYS, or 30)."
    )


def pieces(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--max-rows",
        type=positive,
        metavar="N",
        help="About so many rows become visible at a time (default: 1000000). A killed run repeats fewer than that.",
    )


def follow(step: argparse.ArgumentParser) -> None:
    pieces(step)
    step.add_argument("--seconds", type=amount, default=10.0, help="Seconds between two batches (default: 10).")
    step.add_argument("--once", action="store_true", help="Add the attempts that have finished until now, and exit.")


def report(step: argparse.ArgumentParser) -> None:
    days(step)
    step.add_argument(
        "--target",
        action="append",
        default=[],
        type=target,
        metavar="QUEUE=SECONDS",
        help="Attempts of this queue (*: of all others) should start within these seconds. Can be repeated.",
    )


def condition(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--where", required=True, type=utf8, metavar="SQL", help="A condition on the columns of the lake."
    )


def replay(step: argparse.ArgumentParser) -> None:
    condition(step)
    days(step)
    step.add_argument("--dry-run", action="store_true", help="Count and print the messages, and enqueue nothing.")
    step.add_argument(
        "--again",
        default="",
        type=utf8,
        metavar="WORD",
        help="Any word: replays messages again that were replayed before.",
    )


def whatif(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--slots", type=numbers(positive), default=[1, 2, 4, 8, 16, 32], metavar="N,N", help="Messages run at a time."
    )
    step.add_argument(
        "--load",
        type=numbers(amount),
        default=[1.0],
        metavar="X,X",
        help="Factor of the arrivals in a time (2: twice as many).",
    )
    step.add_argument("--channel-limit", type=positive, metavar="N", help="Messages of a channel run at a time.")
    step.add_argument("--queue", action="append", default=[], type=utf8, help="Only this queue. Can be repeated.")
    step.add_argument(
        "--within",
        type=amount,
        metavar="SECONDS",
        help="Find the number of slots with which messages start within this number of seconds.",
    )
    step.add_argument(
        "--share",
        type=percentage,
        default=95.0,
        metavar="PERCENT",
        help="Percentage of the messages that must start in time (default: 95).",
    )
    days(step)


def days(step: argparse.ArgumentParser) -> None:
    step.add_argument("--since", type=day, metavar="DAY", help="The first day (UTC), such as 2026-11-20.")
    step.add_argument("--until", type=day, metavar="DAY", help="The last day (UTC).")


def utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{text!r} is not text in UTF-8"
        raise argparse.ArgumentTypeError(message) from None
    return text


def day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a day such as 2026-11-20"
        raise argparse.ArgumentTypeError(message) from None


def positive(text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        message = f"{text!r} is not a whole number from 1 on, of at most 18 digits"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def pair(text: str) -> tuple[str, str]:
    name, separator, value = utf8(text).partition("=")
    if not separator or not name:
        message = f"{text!r} is not NAME=VALUE"
        raise argparse.ArgumentTypeError(message)
    return name, value


def amount(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        message = f"{text!r} is not a number above 0"
        raise argparse.ArgumentTypeError(message)
    return found


def percentage(text: str) -> float:
    if (found := amount(text)) > 100:
        message = f"{text!r} is more than 100 per cent"
        raise argparse.ArgumentTypeError(message)
    return found


def target(text: str) -> tuple[str, float]:
    queue, value = pair(text)
    return queue, amount(value)


def numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(word) for word in text.split(",")]
