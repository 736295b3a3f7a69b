"""A TCP proxy of our own: it can swallow what goes in either direction, leave connections half open, or cut them."""

from __future__ import annotations

import asyncio
import contextlib
import threading

PASS, DROP = "pass", "drop"


class Proxy:
    """Its methods may be called from any thread."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.requests = self.answers = PASS
        self.refuses = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=[started], name="proxy", daemon=True).start()
        started.wait()

    def heal(self) -> None:
        self.requests = self.answers = PASS
        self.refuses = False

    def cut(self) -> None:
        """Resets all connections."""
        self._loop.call_soon_threadsafe(self._cut)

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
        await asyncio.gather(self._pump(reader, up, "requests"), self._pump(above, writer, "answers"))
        self._writers -= {writer, up}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if getattr(self, direction) == PASS:
                    writer.write(data)
                    await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()
