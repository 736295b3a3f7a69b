"""A pooler in transaction mode: real clients, real sessions of the server, and one of them for each transaction."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from itertools import count
from typing import Any, Self

import psycopg

NO_ENCRYPTION, VERSION_3, CANCEL = {80877103, 80877104}, 196608, 80877102
# What a client wants to know before its first question.
PARAMETERS = {
    "server_version": "15.0",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
}


class Pooler:
    """Listens on a port of its own.  Sessions are given out in the order "last one back, first one out", as usual."""

    def __init__(self, conninfo: str, *, sessions: int = 3) -> None:
        self.free: queue.LifoQueue[socket.socket] = queue.LifoQueue()
        self.connections: list[psycopg.Connection[Any]] = []
        self.sockets: list[socket.socket] = []
        for _ in range(sessions):
            connection = psycopg.connect(conninfo, autocommit=True)
            self.connections.append(connection)
            server = socket.socket(fileno=os.dup(connection.fileno()))
            server.setblocking(True)
            self.sockets.append(server)
            self.free.put(server)
        self.served: dict[int, socket.socket] = {}
        """The session that each client has now, by the number that it was told to cancel by."""
        self.clients = count(1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        for server in self.sockets:
            server.close()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        number = next(self.clients)
        with contextlib.suppress(OSError, EOFError), client:
            if not self._welcome(client, number):
                return
            while (kind := received(client, 1)) != b"X":
                server = self.served.get(number) or self.served.setdefault(number, self.free.get(timeout=10))
                server.sendall(kind + body(client))
                if kind in {b"Q", b"S"}:
                    self._answer(server, client, number)
        if number in self.served:  # it went away in the middle: nobody else gets what it has left behind
            with contextlib.suppress(OSError):
                self.served.pop(number).shutdown(socket.SHUT_RDWR)

    def _welcome(self, client: socket.socket, number: int) -> bool:
        """False: it wanted to cancel what another one does, and has got its wish."""
        while True:
            (length,) = struct.unpack("!i", received(client, 4))
            asked = received(client, length - 4)
            code, *_ = struct.unpack("!i", asked[:4])
            if code not in NO_ENCRYPTION:
                break
            client.sendall(b"N")
        if code == CANCEL:
            [other] = struct.unpack("!i", asked[4:8])
            if other in self.served:
                self.connections[self.sockets.index(self.served[other])].cancel_safe()
            return False
        assert code == VERSION_3
        client.sendall(message(b"R", struct.pack("!i", 0)))
        for name, value in PARAMETERS.items():
            client.sendall(message(b"S", f"{name}\0{value}\0".encode()))
        client.sendall(message(b"K", struct.pack("!ii", number, 1)) + message(b"Z", b"I"))
        return True

    def _answer(self, server: socket.socket, client: socket.socket, number: int) -> None:
        """Passes on all that the server says.  Outside of a transaction its session is free before the client knows."""
        while True:
            kind, said = received(server, 1), body(server)
            if kind == b"Z" and said[-1:] == b"I":
                self.free.put(self.served.pop(number))
            client.sendall(kind + said)
            if kind == b"Z":
                return


def message(kind: bytes, said: bytes) -> bytes:
    return kind + struct.pack("!i", len(said) + 4) + said


def body(sender: socket.socket) -> bytes:
    """Its length and what follows."""
    length = received(sender, 4)
    return length + received(sender, struct.unpack("!i", length)[0] - 4)


def received(sender: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = sender.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found
