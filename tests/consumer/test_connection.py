"""The worker's connection reads an answer in one go, and waits for what has not come yet, but not for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections

from django_pgqueue.consumer.connection import KEEPALIVES, connect
from django_pgqueue.consumer.session import Session
from django_pgqueue.consumer.wakeup import readable
from tests.support.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_long_result_is_read_without_a_wait_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait ends only when the server has sent all: on a busy machine it sends part after part."""
    waits: list[int] = []
    wait = psycopg.waiting.wait
    watcher, connection = connect("default"), connect("default")
    state = f"select state from pg_stat_activity where pid = {connection.info.backend_pid}".encode()

    def counted(gen: Any, *args: Any, **kwargs: Any) -> Any:
        def counting() -> Generator[Any, Any, Any]:
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    waits.append(1)
                    while watcher.pgconn.exec_(state).get_value(0, 0) == b"active":
                        time.sleep(0.001)
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

        return wait(counting(), *args, **kwargs)

    with watcher, connection:
        monkeypatch.setattr(psycopg.waiting, "wait", counted)
        rows = connection.execute("select repeat('x', 100) from generate_series(1, 1000)").fetchall()
        monkeypatch.undo()
    assert len(rows) == 1000  # 100 kilobytes, which the sockets hold: a dozen parts
    assert len(waits) < 5


@pytest.mark.parametrize("pooled", [False, True])
def test_a_role_that_cannot_be_assumed_is_an_error_of_the_connection(
    pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker tries that again, as a login that is refused, and goes on with the jobs that run."""
    settings = connections["default"].settings_dict
    monkeypatch.setitem(settings, "OPTIONS", {**settings["OPTIONS"], "assume_role": "nobody_here"})
    with pytest.raises(psycopg.OperationalError, match='role "nobody_here" does not exist'):
        Session("default", consumer="one", pooled=pooled).open()


def test_a_result_that_arrives_in_parts_is_waited_for() -> None:
    with connect("default") as connection:
        rows = connection.execute(
            "select repeat('x', 9000) from generate_series(1, 5), pg_sleep(0.05 + 0 * generate_series)"
        ).fetchall()
    assert len(rows) == 5


def test_an_error_and_the_end_of_the_session_are_raised() -> None:
    with connect("default") as connection, connect("default") as other:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        ender = threading.Timer(0.1, other.execute, ["select pg_terminate_backend(%s)", (connection.info.backend_pid,)])
        ender.start()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select pg_sleep(30)")
        ender.join()
        assert connection.broken


def test_a_worker_may_wait_longer_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"options": "-c idle_session_timeout=1s"})
    with connect("default") as connection:
        assert connection.execute("show idle_session_timeout").fetchone() == ("0",)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this time-out")
def test_a_worker_does_not_wait_long_for_a_network_that_drops_packets() -> None:
    with connect("default") as connection, socket.socket(fileno=os.dup(connection.fileno())) as copy:
        if copy.family == socket.AF_UNIX:
            pytest.skip("the tests' server is reached through a Unix socket")
        assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == KEEPALIVES["tcp_user_timeout"]
        assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_an_answer_that_came_while_the_thread_did_not_run_is_read() -> None:
    """A slot may have held the interpreter lock for all that time."""
    with connect("default") as connection:
        connection.answer_seconds = lambda: 10.0
        connection.pgconn.send_query(b"select 1")
        readable([connection.fileno()], SECONDS)
        long_ago = time.monotonic() - 20
        assert connection._silent(long_ago) == long_ago
        assert not connection.closed
        connection.pgconn.get_result()
        with pytest.raises(psycopg.OperationalError, match="the session has not answered for 20 seconds"):
            connection._silent(long_ago)
        assert connection.closed


def test_options_that_a_backend_has_for_itself_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """django-db-geventpool hands the size of its pool on to itself by the connection's parameters."""
    wrapper = type(connections["default"])
    params = wrapper.get_connection_params
    monkeypatch.setattr(wrapper, "get_connection_params", lambda self: {**params(self), "MAX_CONNS": 4})
    with connect("default") as connection:
        assert connection.execute("select 1").fetchone() == (1,)
