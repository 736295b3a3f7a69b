"""The account that runs the server. PostgreSQL refuses to run as root, so root needs another account."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypedDict

from example_project.development.embedded_postgres.errors import EmbeddedPostgresError

ENTER_FOLDER = ["/bin/sh", "-c", 'cd "$1" 2>/dev/null', "sh"]


class RunAs(TypedDict, total=False):
    """Arguments with which subprocess starts a program under an account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """An existing account. This module creates none, and changes only the server's own files."""

    uid: int
    gid: int

    @classmethod
    def for_server(cls) -> Self:
        """The current account; for root PGQUEUE_POSTGRES_USER, "postgres" or "nobody", the first that exists."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        for name in (os.environ.get("PGQUEUE_POSTGRES_USER"), "postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name or "")
            except KeyError:
                continue
            if entry.pw_uid != 0:
                return cls(entry.pw_uid, entry.pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody': "
            "name one in PGQUEUE_POSTGRES_USER, or set DATABASE_URL."
        )

    @property
    def run_as(self) -> RunAs:
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reaches(self, folder: Path) -> bool:
        """Whether it may enter the folder. A process tries it: mode bits do not show parents, ACLs and mounts."""
        if not self.run_as:
            return True
        return subprocess.run([*ENTER_FOLDER, str(folder)], cwd="/", check=False, **self.run_as).returncode == 0

    def own(self, path: Path) -> None:
        """Give the account a file or folder that was just made for the server."""
        if self.run_as:
            os.chown(path, self.uid, self.gid)
