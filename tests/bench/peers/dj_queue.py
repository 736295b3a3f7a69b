"""dj-queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.peers.adapter import chunks
from tests.bench.peers.django_peer import DjangoPeer

if TYPE_CHECKING:
    from collections.abc import Sequence


class Peer(DjangoPeer):
    app = "dj_queue"
    configuration = (
        "dj_queue, fork mode, 8 threads for each process, polling 0.1 s, listens; CONN_MAX_AGE=None; jobs are kept"
    )

    def workers(self, processes: int) -> list[list[str]]:
        return [self.django("dj_queue", "-v", "0", PEER_PROCESSES=str(processes))]

    def bulk(self, numbers: Sequence[int]) -> Any:
        backend: Any = self.noop.get_backend()
        for chunk in chunks(numbers, 1_000):
            backend.enqueue_all([(self.noop, [number], {}) for number in chunk])
