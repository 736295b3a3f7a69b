"""The worker's own connection to the queue."""

from __future__ import annotations

import os
import socket

import pytest

from django_pgqueue.worker.connection import KEEPALIVES, connect


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this time-out")
@pytest.mark.django_db(transaction=True)
def test_a_worker_does_not_wait_long_for_a_network_that_swallows_what_it_sends() -> None:
    with connect("default", prepare=True) as connection, socket.socket(fileno=os.dup(connection.fileno())) as copy:
        if copy.family == socket.AF_UNIX:
            pytest.skip("the tests' server is reached through a Unix socket")
        assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == KEEPALIVES["tcp_user_timeout"]
        assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
