"""Write requirements.txt: the packages that the demo runs with and that build the project, with their files' hashes.

  python3 example_project/development/hashes.py     needs uv on PATH

The versions are those of constraints.txt, the hashes those of all files of a version, for every platform and Python.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "example_project" / "development" / "requirements.txt"
# The package that hatchling needs, beside those of pyproject.toml, when it installs a project editable.
EDITABLE = "editables"
COMMAND = (
    "uv", "pip", "compile", "pyproject.toml", "-", "-c", "example_project/development/constraints.txt",
    "--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "--quiet",
    # The list does not show where this machine gets its packages.
    "--no-emit-index-url", "--no-emit-find-links",
)  # fmt: skip
HEADER = """\
# Made by example_project/development/hashes.py. The packages that the demo runs with, and those that build the project:
# a file with another hash is refused. Installed by `python3 example_project`, or by hand:
#   pip install --require-hashes --only-binary :all: -r example_project/development/requirements.txt
#   pip install --no-deps --no-build-isolation -e .
"""


def main() -> None:
    if shutil.which(COMMAND[0]) is None:
        sys.exit("uv collects the hashes, and is not on PATH.")
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*pyproject["build-system"]["requires"], EDITABLE, *pyproject["dependency-groups"]["demo"]]
    done = subprocess.run(COMMAND, cwd=ROOT, input="\n".join(wanted), stdout=subprocess.PIPE, text=True, check=True)
    if named := re.findall(r"\w+://\S+", done.stdout):
        sys.exit(f"The list names hosts, so it is not written: {', '.join(named)}")
    REQUIREMENTS.write_text(HEADER + done.stdout)


if __name__ == "__main__":
    main()
