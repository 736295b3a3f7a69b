"""The pipeline without Django, for spark-submit and for machines that have only Spark.

    python -m django_pgqueue.spark export --lake s3a://data/jobs
    spark-submit --master yarn .../django_pgqueue/spark/__main__.py report --lake s3a://data/jobs

The database URL comes from the environment variable DATABASE_URL, or from ``--option``.
"""

from __future__ import annotations

import argparse
import os
import sys

from django_pgqueue.spark import command
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.pipeline.progress import shown
from django_pgqueue.spark.session import start

LAKE = "PGQUEUE_LAKE"


def lake(step: argparse.ArgumentParser) -> None:
    known = os.environ.get(LAKE)
    step.add_argument(
        "--lake", default=known, required=not known, help=f"Folder of the lake, or its URL (or the variable {LAKE})."
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m django_pgqueue.spark", description="The queue's data pipeline.")
    command.add_arguments(parser, common=lake)
    asked = parser.parse_args(arguments)
    try:
        with shown() as progress:
            progress.step("starting Spark")
            spark = start(f"qpipeline {asked.step}", master=asked.master, source=False)
            command.run(spark, asked, options={}, say=say, progress=progress)
    except SparkQueueError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"{command.INTERRUPTED}\n")
        return command.INTERRUPTED_CODE
    return 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
