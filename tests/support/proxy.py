"""A TCP proxy of our own: it can swallow what goes in either direction, leave connections half open, or cut them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

PASS, DROP = "pass", "drop"
TCP_REPAIR = 19
"""An option of Linux: a socket that is closed in this state says nothing to the other side."""


class Proxy:
    """Its methods may be called from any thread."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.requests = self.answers = PASS
        self.refuses = False
        self.port = 0
        self._silences = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=[started], name="proxy", daemon=True).start()
        started.wait()

    def heal(self) -> None:
        self.requests = self.answers = PASS
        self.refuses = False

    def fall_silent(self) -> None:
        """Acknowledges what comes on the connections of now, and passes nothing on, as a pooler that hangs."""
        self._silences += 1

    def cut(self) -> None:
        """Resets all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def vanish(self) -> None:
        """Forgets all connections without a word to the clients, as a router does that was started again.  Needs
        CAP_NET_ADMIN.
        """
        done = asyncio.run_coroutine_threadsafe(self._vanish(), self._loop)
        done.result()

    async def _vanish(self) -> None:
        for writer in list(self._clients):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        self._cut()

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            above, up = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up}
        self._clients.add(writer)
        silences = self._silences
        await asyncio.gather(
            self._pump(reader, up, "requests", silences), self._pump(above, writer, "answers", silences)
        )
        self._writers -= {writer, up}
        self._clients.discard(writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str, silences: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if getattr(self, direction) == PASS and silences == self._silences:
                    writer.write(data)
                    await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()
