"""Run the tests: python3 tests [--no-spark] [anything that pytest takes]

Makes the environment on first use, and needs no installed PostgreSQL. --no-spark leaves out what needs PySpark.
"""

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent)


def main(arguments: "list[str]") -> int:
    sys.path.insert(0, ROOT)
    from example_project import bootstrap

    bootstrap.enter("test")
    import pytest

    os.chdir(ROOT)
    # `python3 tests` has put this folder itself in front, where its modules would hide others of the same name.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]
    if "--no-spark" in arguments:
        arguments = ["-m", "not spark", *[argument for argument in arguments if argument != "--no-spark"]]
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
