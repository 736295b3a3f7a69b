"""The folder of one profile's server, and the few files in it that its users share."""

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError

ROOT = Path(__file__).resolve().parents[3]
FALLBACK = Path("/var/tmp")  # noqa: S108 - made private, and checked, in fallback()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server, as its supervisor announces it."""

    url: str
    port: int
    postmaster: int
    supervisor: int
    made_with: str


@dataclass(frozen=True, slots=True)
class Folder:
    """`.embedded_pg/<profile>` in the checkout; elsewhere when another user owns that, or it is private to root."""

    path: Path

    @classmethod
    def of(cls, profile: str) -> Self:
        if named := os.environ.get("PGQUEUE_POSTGRES_HOME"):
            return cls(Path(named).absolute() / profile)
        home = ROOT / ".embedded_pg"
        nearest = nearest_existing(home / profile)
        if usable(home / profile) and Account.for_server().reaches(nearest):
            return cls(home / profile)
        return cls(fallback() / profile)

    @property
    def lease(self) -> Path:
        """Locked shared by every user; exclusively by the supervisor while it stops the server."""
        return self.path / "lease"

    @property
    def starting(self) -> Path:
        """Locked by the process that starts a supervisor."""
        return self.path / "starting"

    @property
    def supervised(self) -> Path:
        """Locked by the supervisor as long as it lives."""
        return self.path / "supervised"

    @property
    def serving(self) -> Path:
        """Locked, through an inherited file, while any process of the server lives."""
        return self.path / "serving"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def servers_own(self) -> Path:
        """Folder of the server's account; everything else here belongs to the user."""
        return self.path / "postgres"

    @property
    def announcement(self) -> Path:
        return self.path / "server.json"

    def make(self) -> None:
        """Make the folder, open to the server's account whatever the umask; its private files have their own modes."""
        for missing in [path for path in reversed((self.path, *self.path.parents)) if not path.exists()]:
            with contextlib.suppress(FileExistsError):  # another process has just made it
                missing.mkdir()
                missing.chmod(0o755)

    def announce(self, server: Server) -> None:
        unfinished = self.announcement.with_suffix(".new")
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds the password
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(server), file)
        unfinished.rename(self.announcement)

    def announced(self) -> Server | None:
        try:
            return Server(**json.loads(self.announcement.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def withdraw(self) -> None:
        self.announcement.unlink(missing_ok=True)


def usable(folder: Path) -> bool:
    """Whether this user owns the folder or can make it: a checkout may be read-only, or shared by two users."""
    nearest = nearest_existing(folder)
    if nearest == ROOT:
        return os.access(ROOT, os.W_OK)
    return nearest.stat().st_uid == os.geteuid()


def nearest_existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def fallback() -> Path:
    mark = hashlib.sha256(bytes(ROOT)).hexdigest()[:12]
    folder = FALLBACK / f"pgqueue-{os.geteuid()}-{mark}"
    folder.mkdir(mode=0o755, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedPostgresError(
            f"{folder} cannot be trusted, because another user could have created or changed "
            "it: remove it, or set PGQUEUE_POSTGRES_HOME."
        )
    return folder
