"""Run the tests: python3 tests [--no-spark] [anything that pytest takes]

Makes the environment on first use; no PostgreSQL has to be installed. --no-spark leaves out what needs PySpark.
PGQUEUE_POSTGRES_BIN=/usr/lib/postgresql/16/bin runs them on a server of those programs, not of the wheel.
Any Python 3 must be able to read this file.
"""

import os
import sys
from pathlib import Path

# Python put this folder first on the path. Its parent belongs there: a module must not have two names.
ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from example_project.development import bootstrap  # noqa: E402


def main(arguments: "list[str]") -> int:
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
