"""What the documentation's blocks are run in."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo

from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from tests.support.fixtures.example import mailers
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["mailers", "psql"]


@dataclass(frozen=True, slots=True)
class Psql:
    """The program psql, connected to a database."""

    program: str
    environment: dict[str, str]

    def run(self, *arguments: str, script: str | None = None) -> str:
        """What it prints; an error of a statement or of the program is an error here."""
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
def psql() -> Iterator[Psql]:
    """psql on an empty database of its own, as somebody without Django has it."""
    server: dict[str, Any] = connections["default"].settings_dict
    name = f"{server['NAME']}_docs"
    address = {key: server[key.upper()] for key in ("host", "port", "user", "password") if server[key.upper()]}
    environment = {f"PG{key.upper()}": str(value) for key, value in address.items()} | {"PGDATABASE": name}
    program = psql_program()
    with psycopg.connect(make_conninfo(dbname="postgres", **address), autocommit=True) as connection:
        drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        connection.execute(drop)
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield Psql(program, environment)
        finally:
            connection.execute(drop)


def psql_program() -> str:
    try:
        found = str(Binaries.found().program("psql"))
    except EmbeddedPostgresError:
        found = ""
    program = shutil.which(found) or shutil.which("psql")
    if program is None:
        pytest.skip("needs psql (Debian: apt install postgresql-client)")
    return program
