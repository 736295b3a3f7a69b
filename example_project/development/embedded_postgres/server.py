"""The entry point for users: `start` joins the running server of a profile, or starts one."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from example_project.development.embedded_postgres.folder import ROOT, Folder, Server
from example_project.development.embedded_postgres.lock import Lock, is_held
from example_project.development.embedded_postgres.postmaster import accepts_connections
from example_project.development.embedded_postgres.profile import Profile
from example_project.development.embedded_postgres.supervisor import READY, Order

START_SECONDS = 90.0
OTHER_USERS_SECONDS = 10.0
LOG_BYTES = 10_000_000
# Isolated from the user's settings and packages: the supervisor needs the standard library only, and starts faster.
SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from example_project.development.embedded_postgres.supervisor import main; main(*sys.argv[2:])"
)

# One lease a profile, for the rest of this process's life. A forked child shares it; an executed program does not.
leases: dict[Path, Lock] = {}


def start(profile: str = "demo", *, settings: Mapping[str, str] | None = None, keep: bool | None = None) -> str:
    """URL of the profile's server, which runs at least as long as this process.

    Processes that ask for the same profile share its server and data. "test" is a fast server whose data is thrown away
    with its last user; every other name is a durable one. `settings` are PostgreSQL's, on top of the profile's:

    >>> start("bench", settings={"max_wal_size": "4GB"}, keep=False)  # doctest: +SKIP
    'postgresql://pgqueue:6fbe…@127.0.0.1:39237/pgqueue'
    """
    forget_other_servers()
    wanted = Profile.named(profile, settings, keep)
    folder = Folder.of(profile)
    folder.make()
    binaries = Binaries.found()
    order = Order(
        folder=str(folder.path),
        binaries=str(binaries.folder),
        version=binaries.version(),
        settings=wanted.settings,
        keep=wanted.keep,
    )
    return join(folder, order).url


def forget_other_servers() -> None:
    """Remove what libpq would add to the URL: a developer's PGOPTIONS or PGSSLMODE are for another server."""
    for name in [name for name in os.environ if name.startswith("PG") and not name.startswith("PGQUEUE_")]:
        del os.environ[name]


def join(folder: Folder, order: Order) -> Server:
    """Return the server that was made as ordered. Wait for the end of another one, which ends with its last user."""
    begun = time.monotonic()
    while True:
        # This waits while a supervisor stops its server; once this process has the lease, the server stays.
        lease = leases.get(folder.path) or Lock.shared(folder.lease)
        server = running(folder, order)
        if server and server.made_with == order.result and accepts_connections(server.port):
            leases[folder.path] = lease
            return server
        if folder.path not in leases:
            lease.release()
        give_up_after(time.monotonic() - begun, folder, server, order)
        time.sleep(0.05)


def running(folder: Folder, order: Order) -> Server | None:
    """Return the announced server; start a supervisor if there is none. None while one is busy with its server."""
    with Lock.exclusive(folder.starting):
        if not is_held(folder.supervised):
            folder.withdraw()
            launch(folder, order)
        return folder.announced()


def give_up_after(seconds: float, folder: Folder, server: Server | None, order: Order) -> None:
    if server and server.made_with != order.result and seconds > OTHER_USERS_SECONDS:
        raise EmbeddedPostgresError(
            f"The server in {folder.path} is in use, and has other settings than those requested: {server.made_with}. "
            "Stop its users, or use another profile."
        )
    if seconds > START_SECONDS:
        raise EmbeddedPostgresError(f"The server in {folder.path} does not accept connections; see {folder.log}.")


def launch(folder: Folder, order: Order) -> None:
    """Start a supervisor and wait until it reports that its server is ready."""
    reader, writer = os.pipe()
    too_long = folder.log.exists() and folder.log.stat().st_size > LOG_BYTES
    with folder.log.open("wb" if too_long else "ab") as log:
        command = [sys.executable, "-I", "-S", "-c", SUPERVISOR, str(ROOT), str(order), str(writer)]
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
            check=True,
        )
    os.close(writer)
    answer = answered(reader)
    if answer != READY:
        raise EmbeddedPostgresError(answer or f"The supervisor ended or hangs, and printed nothing; see {folder.log}.")


def answered(reader: int) -> str:
    """The supervisor's whole reply, or the part that came in time."""
    said = b""
    deadline = time.monotonic() + START_SECONDS
    with open(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (part := pipe.read(65536)):
                break
            said += part
    return said.decode()
