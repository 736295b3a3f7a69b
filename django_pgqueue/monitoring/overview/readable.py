"""Bytes of a database in SQL_ASCII that are no text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections
from psycopg.adapt import Loader
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.abc import Buffer

TEXTS = ("text", "varchar", "bpchar", "name", "json", "jsonb")


class ReadableText(Loader):
    """Shows bytes that are no UTF-8 as replacement characters."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")


@contextmanager
def readable(using: str) -> Iterator[None]:
    """Reads any text in a transaction: a database in SQL_ASCII takes all bytes, and does not send them as UTF-8."""
    session = connections[using].connection
    if session.info.parameter_status("server_encoding") != "SQL_ASCII":
        yield
        return
    known = session.adapters
    before = {oid: known.get_loader(oid, Format.TEXT) for oid in (0, *(known.types[name].oid for name in TEXTS))}
    encoding = session.info.parameter_status("client_encoding")
    _send_as(using, "SQL_ASCII")
    try:
        for oid in before:
            known.register_loader(oid, ReadableText)
        yield
        _send_as(using, encoding)
    finally:
        for oid, loader in before.items():
            known.register_loader(oid, loader)


def _send_as(using: str, encoding: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("select set_config('client_encoding', %s, true)", [encoding])
