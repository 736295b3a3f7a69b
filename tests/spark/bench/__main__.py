"""Measure Spark beside the queue: python3 tests/spark/bench [--rows 1000000] [--only read] [--master local[2]]

``--only first-export --rows 50000000 --kill-seconds 60`` kills a first export every minute, and begins it again.
``--only jdbc`` reads beside Spark's own source; Debian's package libpostgresql-jdbc-java has the driver that it needs.

A PostgreSQL of its own is started, unless DATABASE_URL names an empty one; what is in its queue and history is lost.
"""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[0] = str(ROOT)

from example_project.development import bootstrap  # noqa: E402

STEPS = ("read", "enqueue", "export", "report")
TORMENT, JDBC = "first-export", "jdbc"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 tests/spark/bench", description="Measures Spark on this machine.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="attempts in the history, and rows to enqueue")
    parser.add_argument("--days", type=int, default=3, help="days that they are spread over")
    parser.add_argument("--runs", type=int, default=6, help="of each read: they get faster while Java compiles")
    parser.add_argument("--filled", action="store_true", help="the history has these rows already: do not touch it")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", nargs="+", choices=[*STEPS, TORMENT, JDBC], default=STEPS, help="these alone")
    parser.add_argument("--kill-seconds", type=float, default=60, help=f"{TORMENT}: kill all processes so often")
    parser.add_argument("--jar", default="/usr/share/java/postgresql.jar", help=f"{JDBC}: PostgreSQL's driver for Java")
    parser.add_argument("--piece", type=int, default=1_000_000, help=f"{TORMENT}: rows that become visible at a time")
    asked = parser.parse_args()
    bootstrap.enter("bench", "spark", "test")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.settings"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    from tests.spark.bench import measures

    measures.run(asked)


if __name__ == "__main__":
    main()
