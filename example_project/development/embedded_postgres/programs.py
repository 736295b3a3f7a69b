"""Programs of PostgreSQL, run against the server of a URL."""

import os
import subprocess
from typing import IO
from urllib.parse import urlsplit

from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError


def run(
    program: str, arguments: list[str], url: str, *, output: "IO[str] | int | None" = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program as a child, because this process's lease keeps the server. `output` gets both of its streams."""
    path = Binaries.found().program(program)
    if not path.exists():
        raise EmbeddedPostgresError(f"There is no program {program!r} in {path.parent}.")
    address = urlsplit(url)
    connection = {
        "PGHOST": address.hostname,
        "PGPORT": str(address.port),
        "PGUSER": address.username,
        "PGPASSWORD": address.password,
        "PGDATABASE": address.path.removeprefix("/"),
    }
    known = {key: value for key, value in connection.items() if value}
    return subprocess.run(
        [str(path), *arguments], env={**os.environ, **known}, stdout=output, stderr=output, text=True, check=False
    )
