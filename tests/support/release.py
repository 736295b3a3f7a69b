"""Makes a release: checks that everything agrees on the version, builds, checks what was built, and tags the commit.

    python -m tests.support.release 0.1.0            then: git push origin 0.1.0
    python -m tests.support.release 0.1.0 --no-tag   checks and builds, for a workflow that a tag has started

Wheel and sdist come from a fresh clone of the last commit, so that nothing else is in them.  The checks of the built
files run in an environment of their own, which is removed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django_pgqueue.functions import sql_files
from example_project.development.environment import (
    CONSTRAINTS,
    INSTALLERS_VARIABLES,
    Environment,
    dependency_groups,
    requirements_of,
)
from tests.support.released_sql import MIGRATIONS, in_force, newest_migration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = Path("docs", "pages", "about", "changelog.md")
VERSION = r"\d+\.\d+\.\d+"


class NotReady(Exception):
    """The release cannot be made."""


def release(version: str, *, folder: Path, tag: bool, root: Path = ROOT) -> list[Path]:
    """Returns the files that were built and checked."""
    if found := list(problems(version, root=root, tag=tag)):
        raise NotReady("\n".join(found))
    built = build(folder, root)
    with tools(root) as programs:
        check(built, root, programs)
    if tag:
        git(root, "tag", "--annotate", version, "--message", f"Release {version}")
    return built


def problems(version: str, *, root: Path, tag: bool) -> Iterator[str]:
    """Yield what keeps the release from being made, each with the next step."""
    if not re.fullmatch(VERSION, version):
        yield f"{version!r} is no version: use three numbers, such as 0.1.0."
        return
    written = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if written != version:
        yield f"pyproject.toml has the version {written}: write {version} there."
    newest = re.search(r"^## (.+)$", (root / CHANGELOG).read_text(encoding="utf-8"), re.MULTILINE)
    if newest is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[1]):
        heading = newest[1] if newest else "nothing"
        yield f"{CHANGELOG} begins with {heading!r}: write '{version} (<year>-<month>-<day>)'."
    yield from sql_problems(version)
    yield from git_problems(version, root=root, tag=tag)


def sql_problems(version: str) -> Iterator[str]:
    make = f"Run: python -m tests.support.released_sql {version}"
    if version not in sql_files.releases():
        yield f"sql/released/{version}.txt is missing. {make}"
    elif sql_files.releases()[-1] != version:
        yield f"sql/released has the later release {sql_files.releases()[-1]}."
    elif (
        sql_files.shipped(version) != in_force()
        or sql_files.last_migration(version) != newest_migration(MIGRATIONS).stem
    ):
        yield f"sql/released/{version}.txt lists other texts than sql/ has. Remove it if it was never published. {make}"


def git_problems(version: str, *, root: Path, tag: bool) -> Iterator[str]:
    if changed := git(root, "status", "--porcelain").splitlines():
        yield f"{len(changed)} files are not committed, and would not be in the release: {changed[0].strip()} …"
    if tag and git(root, "tag", "--list", version).strip():
        yield f"The tag {version} exists: a release never changes. Take the next number."


def build(folder: Path, root: Path) -> list[Path]:
    if folder.exists() and any(folder.iterdir()):
        message = f"{folder} is not empty: what is in it would be published too."
        raise NotReady(message)
    with tempfile.TemporaryDirectory(prefix="pgqueue-release-") as name:
        clone = Path(name) / "clone"
        git(root, "clone", "--quiet", str(root), str(clone))
        run([sys.executable, "-m", "hatchling", "build", "-d", str(folder.absolute())], cwd=clone)
    return sorted(folder.iterdir())


@contextmanager
def tools(root: Path) -> Iterator[Path]:
    """Yields the folder of twine and check-wheel-contents."""
    with tempfile.TemporaryDirectory(prefix="pgqueue-release-") as name:
        environment = Environment(Path(name))
        environment.create()
        wanted = [*requirements_of("release", dependency_groups())]
        installer = next(environment.installers(), None)
        if installer is None:
            message = "No installer was found for twine and check-wheel-contents."
            raise NotReady(message)
        run([*installer, "--quiet", "-c", str(CONSTRAINTS), *wanted], cwd=root)
        yield environment.python.parent


def check(built: Sequence[Path], root: Path, programs: Path) -> None:
    files = [str(path.absolute()) for path in built]
    run([str(programs / "twine"), "check", "--strict", *files], cwd=root)
    wheels = [path for path in files if path.endswith(".whl")]
    run([str(programs / "check-wheel-contents"), *wheels], cwd=root)


def git(root: Path, *arguments: str) -> str:
    return run(["git", *arguments], cwd=root)


def run(command: list[str], *, cwd: Path) -> str:
    env = {**os.environ, **INSTALLERS_VARIABLES, "PIP_NO_COMPILE": "1"}  # few of the tools' files are used
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        raise NotReady(message)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.release", description=__doc__.partition("\n")[0])
    parser.add_argument("version")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="Folder for the built files (default: dist).")
    parser.add_argument("--no-tag", action="store_true", help="Check and build, and make no tag.")
    asked = parser.parse_args()
    try:
        built = release(asked.version, folder=asked.into, tag=not asked.no_tag)
    except NotReady as error:
        sys.exit(str(error))
    print("\n".join(map(str, built)))
    if not asked.no_tag:
        print(f"Tagged. To publish it: git push origin {asked.version}")


if __name__ == "__main__":
    main()
