"""Limits of the server that are reached: connections, time for a statement, time for a lock."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import psycopg

from tests.proofs.reliability.faults.backends import SESSIONS
from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("max_connections filled", "database", stops_everybody=True)
def fill_connections(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    held: list[psycopg.Connection[Any]] = []
    with storm.server.when_there() as admin, contextlib.ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            while len(held) < 200:
                held.append(stack.enter_context(storm.server.connect()))
        for _ in range(3):  # who lost its session finds no other
            pids = [pid for [pid] in admin.execute(SESSIONS)]
            for pid in pids[:3]:
                admin.execute("select pg_terminate_backend(%s)", [pid])
            time.sleep(0.05)
            with contextlib.suppress(psycopg.OperationalError):
                while len(held) < 200:
                    held.append(stack.enter_context(storm.server.connect()))
        time.sleep(1)
    return {"connections": len(held)}


def with_timeout(storm: Storm, setting: str) -> dict[str, Any]:
    """New sessions have it; then writes have to wait for longer, in claims, ends and heartbeats."""
    with storm.server.when_there() as admin:
        admin.execute(f"alter role storm set {setting} = '40ms'".encode())
        end_sessions(admin)
        try:
            for _ in range(8):
                with admin.transaction():
                    admin.execute("lock table pgqueue_message in share row exclusive mode")
                    time.sleep(0.12)
                time.sleep(0.1)
        finally:
            admin.execute(f"alter role storm reset {setting}".encode())
            end_sessions(admin)
    return {setting: "40ms"}


def end_sessions(admin: psycopg.Connection[Any]) -> None:
    admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'storm'")


@fault("statement_timeout", "database", stops_everybody=True)
def statement_timeout(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return with_timeout(storm, "statement_timeout")


@fault("lock_timeout", "database", stops_everybody=True)
def lock_timeout(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return with_timeout(storm, "lock_timeout")


@fault("idle_in_transaction_session_timeout", "database")
def idle_in_transaction(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    with storm.server.when_there() as admin:
        admin.execute("alter role storm set idle_in_transaction_session_timeout = '3ms'")
        end_sessions(admin)
        time.sleep(1.5)
        admin.execute("alter role storm reset idle_in_transaction_session_timeout")
        end_sessions(admin)
    return {}
