"""Measure the queue: python3 tests/bench [--only drain pick-up] [--full] [--json figures.json]"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[0] = str(ROOT)

from example_project.development import bootstrap  # noqa: E402


def main() -> None:
    bootstrap.enter("bench", *(["bench-plots"] if "--plots" in sys.argv else []))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    from tests.bench import command

    command.main(sys.argv[1:])


if __name__ == "__main__":
    main()
