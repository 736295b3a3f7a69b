"""The database in which the documentation's blocks are run, and the built site."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.databases import empty_database, psql_program
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Psql:
    """The program psql, connected to a database."""

    program: str
    environment: dict[str, str]

    def run(self, *arguments: str, script: str | None = None) -> str:
        """Return what it prints; an error of a statement or of the program is an error here."""
        ended = subprocess.run(
            [self.program, "--no-psqlrc", "--set=ON_ERROR_STOP=1", *arguments],
            input=script,
            env={**os.environ, **self.environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="session")
def psql(test_database: str) -> Iterator[Psql]:
    """psql on an empty database of its own, as somebody without Django has it."""
    names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    with empty_database(test_database, "docs") as database:
        address = conninfo_to_dict(database)
        yield Psql(psql_program(), {names[key]: str(value) for key, value in address.items() if value})


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built pages."""
    if find_spec("properdocs") is None:
        pytest.skip("needs the group docs: python -m pip install --group docs -e .")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "properdocs", "build", "--strict", "-f", "docs/mkdocs.yml", "-d", str(folder)]
    ended = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder
