"""Users of embedded servers, each a process of its own that a test can end in any way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from example_project.development.embedded_postgres.folder import Folder, Server
from example_project.development.embedded_postgres.lock import is_held
from example_project.development.embedded_postgres.postmaster import wait_until

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 20.0
# Prints the address, then holds its lease until its standard input ends.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from example_project.development import embedded_postgres
try:
    print(embedded_postgres.start(sys.argv[2], **json.loads(sys.argv[3])), flush=True)
except embedded_postgres.EmbeddedPostgresError as error:
    sys.exit(f"refused: {error}")
sys.stdin.read()
"""


class User:
    """A process that uses a server."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.gone = False

    @cached_property
    def url(self) -> str:
        """The address it was given; waits for it."""
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line, f"no address, but: {self.complaint}"
        return line

    @cached_property
    def complaint(self) -> str:
        """Its complaint when it was refused a server; waits for its end."""
        assert self.process.stderr
        return self.process.stderr.read().strip()

    def leave(self, how: signal.Signals | None = None) -> None:
        """End as a program that is through, or by a signal."""
        if how:
            self.process.send_signal(how)
        self.process.communicate(timeout=SECONDS)
        self.gone = True


@dataclass
class Host:
    """A folder for servers, and the users who were sent there."""

    home: Path
    users: list[User] = field(default_factory=list)

    def user(
        self, profile: str = "demo", *, root: Path = ROOT, env: Mapping[str, str] | None = None, **options: Any
    ) -> User:
        """A new process that calls start(profile, **options), with the code below `root`."""
        command = [sys.executable, "-c", PROGRAM, str(root), profile, json.dumps(options)]
        variables = {**os.environ, "PGQUEUE_POSTGRES_HOME": str(self.home), **(env or {})}
        user = User(command, {key: value for key, value in variables.items() if value})
        self.users.append(user)
        return user

    def folder(self, profile: str = "demo") -> Folder:
        return Folder(self.home / profile)

    def server(self, profile: str = "demo") -> Server:
        announced = self.folder(profile).announced()
        assert announced
        return announced

    def wait_until_stopped(self, profile: str = "demo") -> None:
        folder = self.folder(profile)
        assert wait_until(lambda: not is_held(folder.supervised) and not is_held(folder.serving), SECONDS)

    def stop(self) -> None:
        """Have everybody leave, and every server stopped at once."""
        for user in self.users:
            if not user.gone:
                user.leave()
        for lease in self.home.glob("*/lease"):
            profile = lease.parent.name
            if server := self.folder(profile).announced():
                with suppress(ProcessLookupError):
                    os.kill(server.supervisor, signal.SIGTERM)  # it would wait a while for newcomers
            self.wait_until_stopped(profile)


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and whom nobody has asked for its exit code does not."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end between the opening of the file and its reading
        return stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc/self").exists()


def ask(url: str, question: str) -> Any:
    """The one value that the query answers with."""
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        row = connection.execute(question.encode()).fetchone()
        assert row
        return row[0]


def tell(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        connection.execute(statement.encode())
