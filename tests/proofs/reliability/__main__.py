"""Let it storm: python3 tests/proofs/reliability [--seed 1] [--jobs 200000] [--faults 500] [--sabotage fence]"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[0] = str(ROOT)

from example_project.development import bootstrap  # noqa: E402


def main() -> int:
    bootstrap.enter("test")  # also for cron expressions, and psycopg's connection pool
    return run(sys.argv[1:])


def run(arguments: "list[str]") -> int:
    """In an environment that has what is needed."""
    parser = argparse.ArgumentParser(prog="python3 tests/proofs/reliability", description="Lets it storm, and checks.")
    parser.add_argument("--seed", type=int, default=1, help="stands for what is enqueued, and which faults are done")
    parser.add_argument("--jobs", type=int, default=200_000, help="so many are enqueued, at least")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=0.0, help="spread both over that time")
    parser.add_argument("--short", action="store_true", help="without the kinds of faults that take long")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="no other faults; may be repeated")
    parser.add_argument(
        "--sabotage",
        choices=("fence", "second-look", "retry-floor", "slot", "step-fence", "event-look", "children"),
        default="",
        help="break a promise on purpose",
    )
    parser.add_argument("--json", type=Path, help="write the report to this file, too")
    parser.add_argument(
        "--page", type=Path, help="put the report into this page of the documentation, between its marks"
    )
    parser.add_argument("--keep", type=Path, help="keep the log in this folder")
    parser.add_argument("--check", type=Path, help="check a log that was kept, and do nothing else")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.check)
    with tempfile.TemporaryDirectory(prefix="pgqueue-storm-", ignore_cleanup_errors=True) as name:
        return storm(arguments, options, options.keep or Path(name))


def check(folder: Path) -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.proofs.reliability.settings"
    import django

    django.setup()
    from tests.proofs.reliability import log, report

    return 1 if report.show_invariants(log.load(folder / "log", folder / "diary")) else 0


def storm(arguments: "list[str]", options: argparse.Namespace, folder: Path) -> int:
    """0: all held."""
    import django

    # Also who is asked to leave takes its server, its workers and its disks away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = folder.resolve()
    folder.mkdir(exist_ok=True)
    os.environ["STORM_FOLDER"] = str(folder)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.proofs.reliability.settings"
    django.setup()
    from tests.proofs.reliability import page, report
    from tests.proofs.reliability.storm import Storm

    raging = Storm(
        folder,
        seed=options.seed,
        jobs=options.jobs,
        faults=options.faults,
        minutes=options.minutes,
        short=options.short,
        only=options.only,
        sabotaged=options.sabotage,
        say=Progress(),
    )
    log, facts = raging.run()
    whole: dict[str, Any] = report.report(log, facts)
    report.show(whole)
    if options.json:
        report.write(options.json, whole)
    if options.page:
        page.put(options.page, whole | {"arguments": without_files(arguments)})
    return 1 if whole["violations"] or whole["broken faults"] else 0


def without_files(arguments: "list[str]") -> "list[str]":
    """What somebody else would write to have the same storm."""
    at = [n for n, word in enumerate(arguments) if word in ("--json", "--page", "--keep")]
    return [word for n, word in enumerate(arguments) if n not in at and n - 1 not in at]


class Progress:
    """Says the same thing once, and not too often."""

    def __init__(self) -> None:
        self.last, self.every = 0.0, 0.5 if sys.stdout.isatty() else 15.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now - self.last > self.every:
            self.last = now
            print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
