"""Run the tests: python3 tests [--no-spark] [anything that pytest takes]

Makes the environment on first use; no PostgreSQL has to be installed. --no-spark leaves out what needs PySpark.
PGQUEUE_POSTGRES_BIN=/usr/lib/postgresql/16/bin runs them on a server of those programs, not of the wheel.
Any Python must be able to read this file: Python 2 says that it is too old, and an old Python 3 finds a newer one.
"""

import os
import sys

if sys.version_info < (3,):  # noqa: UP036 - it may be Python 2
    sys.exit("Python 3.11 or newer is needed, and this is Python 2. Type: python3 tests")

from pathlib import Path

# Python put this folder first on the path. Its parent belongs there: a module must not have two names.
ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from example_project.development import bootstrap  # noqa: E402


def main(arguments):  # type: (list[str]) -> int
    # A test starts the demo as the README does: it must find its environment ready.
    bootstrap.enter("demo", "test", *([] if "--no-spark" in arguments else ["spark"]))
    import pytest

    os.chdir(str(ROOT))
    if "--no-spark" in arguments:
        arguments.remove("--no-spark")
        arguments += ["--ignore", "tests/spark"]
    return pytest.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
