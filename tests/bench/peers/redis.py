"""A Redis of our own for the peers that need one, as it comes; gone with the benchmark."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.bench.peers.environment import Unavailable
from tests.bench.workers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Its address, and its process."""
    program = shutil.which("redis-server")
    if program is None:
        message = "there is no redis-server here"
        raise Unavailable(message)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pgqueue-redis-") as folder:
        words = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: answers(port), "Redis", seconds=20)
            yield f"redis://127.0.0.1:{port}/0", process.pid
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def flush(address: str) -> None:
    """Forgets everything; the protocol is plain enough to do without a client."""
    host, _, port = address.removeprefix("redis://").partition("/")[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        if not (answer := connection.recv(64)).startswith(b"+OK"):
            raise Unavailable(answer.decode())
