"""The command line: which workloads, how large, how often, and where the figures go."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import sizes
from tests.bench.figures import Figures
from tests.bench.peers.catalogue import PEERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from tests.bench.bench import Bench

WORKLOADS = {
    "enqueue": "one by one: clients, workers that sleep, task.enqueue()",
    "bulk": "many at once, beside COPY",
    "drain": "no-op tasks by 1, 2, 4, 16 processes, beside a raw loop and plain rows",
    "kinds": "sync and async tasks",
    "threads": "jobs that wait for 5 ms, and jobs that use the ORM, on threads",
    "recovery": "a worker is killed in the middle of a job",
    "edit": "a flood of another queue is cancelled by one edit, beside jobs",
    "atomic": "atomic tasks that write a row, beside a hand-written loop",
    "pick-up": "single jobs on an idle worker",
    "idle": "what a worker costs that has nothing to do",
    "wake-up": "durable tasks that wait for events on an idle worker, and what it costs meanwhile",
    "scheduled": "a drain behind messages that are scheduled, over 1 and 201 priorities, or suspended",
    "unknown": "a drain beside messages of tasks that no worker knows",
    "dependants": "a chain, and a chain of two beside others that wait",
    "history": "a drain beside a long history",
    "snapshot": "a drain while another session holds a snapshot",
    "burst": "the first burst on tables that were never analysed",
    "mixed": "enqueues and jobs at 70 % of capacity, and how long jobs wait",
    "flow": "one commit for each job, at some rates, and what each job costs",
    "channels": "1 000 channels, and others",
    "model": "waits that a model predicts, beside measured ones",
    "workflows": "jobs of three steps, beside other systems that record steps (only when named)",
    "peers": "other queues, each in an environment of its own (only when named)",
}


def parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {name:10} {words}" for name, words in WORKLOADS.items())
    parser = argparse.ArgumentParser(
        prog="python3 tests/bench",
        description=f"Measures the queue on this machine.\n\nWorkloads:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="WORKLOAD", help="these alone")
    parser.add_argument("--runs", type=int, default=3, help="runs of each workload; the table shows their median")
    parser.add_argument(
        "--full", action="store_true", help="the sizes of the published figures: hours, and 40 GB of disk"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        metavar="NAME",
        help=f"of the workloads peers and workflows, these alone: {', '.join(PEERS)}",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them into this folder (installs Matplotlib)")
    sizes.add_arguments(parser.add_argument_group("sizes"))
    return parser


def main(arguments: Sequence[str]) -> None:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and what was measured is still told
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.settings"
    measure(options)


def measure(options: argparse.Namespace) -> None:
    import django

    django.setup()
    from rich.console import Console

    from tests.bench import database, machine

    # Workers join this server: settings that are loaded again in a new process find it here.
    os.environ.setdefault("DATABASE_URL", database.url())
    database.prepare()
    chosen = sizes.Sizes.chosen(options)
    with database.connect() as connection:
        about = machine.about(connection, {"runs": options.runs, **chosen.said()})
    figures = Figures()
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        run(options, chosen, figures, console)
    finally:  # what was measured is not lost when a workload fails, or when somebody stops it
        figures.show(console, about)
        if options.json:
            figures.write(options.json, about)
    if options.plots:
        from tests.bench import plots

        plots.draw(figures.as_json(about), options.plots)


def run(options: argparse.Namespace, chosen: sizes.Sizes, figures: Figures, console: Console) -> None:
    from rich.progress import Progress

    from tests.bench.bench import Bench

    steps = workloads()
    names = options.only or [name for name in WORKLOADS if name not in ("peers", "workflows")]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names) * options.runs)
        for name in names:
            for number in range(options.runs):
                progress.update(bar, description=f"{name}, run {number + 1}")
                steps[name](
                    Bench(workload=name, figures=figures, sizes=chosen, run=number, peers=tuple(options.peers or ()))
                )
                progress.advance(bar)


def workloads() -> dict[str, Callable[[Bench], None]]:
    """Imported here: they need Django's settings."""
    from tests.bench import channels, deaths, dependants, drain, edits, enqueue, flow, mixed, pickup, prediction, wakeup
    from tests.bench.peers import comparison

    return {
        "enqueue": enqueue.one_by_one,
        "bulk": enqueue.in_bulk,
        "drain": drain.by_processes,
        "kinds": drain.by_kind,
        "threads": drain.on_threads,
        "recovery": deaths.recovery,
        "edit": edits.cancelling,
        "atomic": drain.with_a_row,
        "pick-up": pickup.latency,
        "idle": pickup.idle,
        "wake-up": wakeup.events,
        "scheduled": drain.behind_scheduled,
        "unknown": drain.beside_unknown,
        "dependants": dependants.chains,
        "history": drain.beside_history,
        "snapshot": drain.beside_snapshot,
        "burst": drain.first_burst,
        "mixed": mixed.steady,
        "flow": flow.steady,
        "channels": channels.lanes,
        "model": prediction.checked,
        "workflows": comparison.compare_workflows,
        "peers": comparison.compare,
    }
