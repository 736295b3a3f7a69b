"""A driver to be killed: exports again and again, or follows, and says what it is about.

python -m tests.spark.pipeline.exporter export|follow LAKE
"""

from __future__ import annotations

import sys

from django_pgqueue.management.commands.qpipeline import VARIABLE
from django_pgqueue.spark.lake.errors import LakeConflict
from django_pgqueue.spark.pipeline import export, follow
from django_pgqueue.spark.pipeline.progress import Lines
from django_pgqueue.spark.session import start
from tests.spark.quick import QUICK


def main(step: str, lake: str) -> None:
    progress = Lines(sys.stdout)
    spark = start("to be killed", master="local[2]", configuration=QUICK)
    options = {"urlVariable": VARIABLE}
    progress.say("begun")
    while True:
        try:
            if step == "follow":
                follow(spark, lake, seconds=0.2, options=options, progress=progress)
            else:
                export(spark, lake, options=options, progress=progress)
        except LakeConflict:  # the lock of the one before, whose session the server has not missed yet
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
