"""The data directory: made once for each major version, readable only by the server."""

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError

NAME = "pgqueue"  # name of the superuser and of the database
PASSWORD = "pgqueue-password"  # noqa: S105 - a file name; the file is in the data directory, so the two stay together


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An initialised data directory with the programs and the account that serve it."""

    data: Path
    major: int
    binaries: Binaries
    account: Account

    @classmethod
    def of(cls, folder: Path, binaries: Binaries, account: Account) -> Self:
        """The cluster that these programs serve in this folder, whether it exists yet or not."""
        major = int(re.findall(r"\d+", binaries.version())[0])
        return cls(data=folder / f"data-{major}", major=major, binaries=binaries, account=account)

    def initialise_once(self) -> None:
        if not self.data.exists():
            self.data.parent.mkdir(mode=0o700, exist_ok=True)
            self.account.own(self.data.parent)
            self.initialise()

    @property
    def password(self) -> str:
        return (self.data / PASSWORD).read_text()

    def url(self, port: int) -> str:
        return f"postgresql://{NAME}:{self.password}@127.0.0.1:{port}/{NAME}"

    def initialise(self) -> None:
        unfinished, password = self.data.with_name("unfinished"), self.data.with_name(PASSWORD)
        shutil.rmtree(unfinished, ignore_errors=True)
        password.unlink(missing_ok=True)
        fd = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(16))
        self.account.own(password)
        self.run("initdb", "-D", str(unfinished), "-U", NAME, f"--pwfile={password}", *initdb_options(self.major))
        self.run("postgres", "--single", "-F", "-D", str(unfinished), "postgres", text=f"create database {NAME}\n")
        password.rename(unfinished / PASSWORD)
        unfinished.rename(self.data)  # atomic: a killed process leaves no half-made cluster behind

    def run(self, program: str, *arguments: str, text: str = "") -> None:
        command = [str(self.binaries.program(program)), *arguments]
        done = subprocess.run(
            command,
            input=text,
            cwd="/",
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            **self.account.run_as,
        )
        if done.returncode != 0:
            raise EmbeddedPostgresError(f"{program} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")

    def remove(self) -> None:
        shutil.rmtree(self.data.parent, ignore_errors=True)


def initdb_options(major: int) -> list[str]:
    options = ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync"]
    if major >= 17:  # sorts like C, but handles upper and lower case of all letters
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return options


def environment() -> dict[str, str]:
    """This process's environment, without variables that change the server's settings or its messages' language."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"}
