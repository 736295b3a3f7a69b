"""Measure the queue: python3 tests/bench [--runs 3] [--jobs 50000] [--only channels] [--json figures.json]"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[0] = str(ROOT)

from example_project import bootstrap  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 tests/bench", description="Measures the queue on this machine.")
    parser.add_argument("--runs", type=int, default=3, help="runs of each workload; the table shows their median")
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs of each drain")
    parser.add_argument("--only", nargs="+", choices=("enqueue", "drain", "channels", "pick-up"), help="these alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    bootstrap.enter("bench")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.settings"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    measure(options)


def measure(options: argparse.Namespace) -> None:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from rich.console import Console
    from rich.progress import Progress

    from django_pgqueue.worker.connection import connect
    from tests.bench import channels, figures, tasks, workloads

    # Workers join this server: settings that are loaded again in a new process find it here.
    os.environ.setdefault("DATABASE_URL", url(settings.DATABASES["default"]))
    call_command("migrate", verbosity=0)
    found, jobs = figures.Figures(), options.jobs
    console = Console(width=None if sys.stdout.isatty() else 100)
    steps: dict[str, list[Callable[[], None]]] = {
        "enqueue": [
            lambda: workloads.enqueue_one(found, max(200, jobs // 25)),
            lambda: workloads.enqueue_bulk(found, jobs),
            lambda: workloads.enqueue_many(found, jobs),
        ],
        "drain": [
            lambda: workloads.drain_raw(found, jobs),
            lambda: workloads.drain(found, jobs, task=tasks.noop, processes=1, threads=1),
            lambda: workloads.drain(found, jobs, task=tasks.noop, processes=1, threads=4),
            lambda: workloads.drain(found, jobs, task=tasks.noop, processes=2, threads=4),
            lambda: workloads.drain(found, jobs, task=tasks.async_noop, processes=1, threads=4),
        ],
        "channels": [
            lambda: channels.drain(found, jobs, channels=0, limit=None),
            lambda: channels.drain(found, jobs, channels=10, limit=None),
            lambda: channels.drain(found, jobs, channels=1_000, limit=5),
            lambda: channels.drain(found, jobs, channels=10_000, limit=1),
        ],
        "pick-up": [
            lambda: workloads.pick_up(found, 200, gap_seconds=0.02),
            lambda: workloads.pick_up(found, 15, gap_seconds=1.5),
        ],
    }
    chosen = [step for name in options.only or steps for step in steps[name]]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("measuring", total=len(chosen) * options.runs)
        for _ in range(options.runs):
            for step in chosen:
                step()
                progress.advance(bar)
    with connect("default", prepare=False) as connection:
        about = figures.about(connection) | {"runs": options.runs, "jobs": jobs}
    found.show(console, about)
    if options.json:
        found.write(options.json, about)


def url(database: "dict[str, str]") -> str:
    return "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)


if __name__ == "__main__":
    main()
