"""The demo in one command: ``python3 example_project`` (or ``--help``). Any Python 3 must be able to read this file."""

import sys
from pathlib import Path

# Python put this folder first on the path. Its parent belongs there: a module must not have two names.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from example_project import bootstrap  # noqa: E402

if __name__ == "__main__":
    bootstrap.enter("demo")

    from example_project import demo

    sys.exit(demo.main(sys.argv[1:]))
