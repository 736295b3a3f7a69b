"""The pipeline without Django: the script ``pgqueue-spark``, and ``python -m django_pgqueue.spark``.

    pgqueue-spark export --lake s3a://data/jobs
    pgqueue-spark report --lake s3a://data/jobs --master yarn --conf spark.executor.instances=4

The database URL comes from the environment variable DATABASE_URL, or from ``--option``.
"""

from __future__ import annotations

import argparse
import os
import sys

from django_pgqueue.spark.arguments import INTERRUPTED, INTERRUPTED_CODE, add_arguments, missing, utf8
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.progress import Lines

LAKE = "PGQUEUE_LAKE"


def lake(step: argparse.ArgumentParser) -> None:
    known = os.environ.get(LAKE)
    step.add_argument(
        "--lake",
        default=known,
        required=not known,
        type=utf8,
        help=f"Folder of the lake, or its URL (or the variable {LAKE}).",
    )


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="pgqueue-spark", description="The queue's data pipeline.")
    add_arguments(found, common=lake)
    return found


def script() -> int:
    return main(sys.argv[1:])


def main(arguments: list[str]) -> int:
    asked = parser().parse_args(arguments)
    try:
        from django_pgqueue.spark import session, steps  # noqa: PLC0415 -- help and wrong arguments need no Spark

        steps.check_address(asked, {})
        progress = Lines(sys.stderr)
        progress.step("starting Spark")
        spark = session.start_here(f"qpipeline {asked.step}", master=asked.master, configuration=dict(asked.conf))
        steps.run(spark, asked, options={}, say=say, progress=progress)
    except SparkQueueError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except ImportError as error:
        sys.stderr.write(f"{missing(error)}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTED}\n")
        return INTERRUPTED_CODE
    return 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(script())
