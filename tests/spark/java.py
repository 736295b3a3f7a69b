"""A Java for tests: it compiles little, and it has the classes of Spark ready (class data sharing).

A start of Spark takes 4 seconds of the processor with it, and 13 with Java's defaults.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from django_pgqueue.spark import session

# Most of what is run here is run once, on a few rows: to compile it well takes longer than to run it.
FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WRITE, READ = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string")
rows.groupBy("name").count().join(rows, "name").orderBy("name").collect()
spark.stop()
"""


def home(folder: Path) -> Path:
    """Makes a JAVA_HOME in the folder, and the archive of classes if this environment has none yet."""
    java = session.java_home() / "bin" / "java"
    archive = Path(sys.prefix, "spark-classes.jsa")
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run of the tests may be at it
        if not archive.exists():
            dumped = archive.with_suffix(".new")
            dumped.unlink(missing_ok=True)
            first = _home(folder / "first", java, f"{WRITE}{dumped}")
            environment = {**os.environ, "JAVA_HOME": str(first)}
            subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True)
            if dumped.exists():  # not every Java can
                dumped.replace(archive)
    return _home(folder / "java", java, f"{READ}{archive}" if archive.exists() else "")


def _home(folder: Path, java: Path, flag: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{java}" {FLAGS} -Xlog:disable {flag} "$@"\n')
    program.chmod(0o755)
    return folder
