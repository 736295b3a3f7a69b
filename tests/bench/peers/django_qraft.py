"""django-qraft, as a backend of django.tasks."""

from __future__ import annotations

from tests.bench.peers.django_peer import DjangoPeer


class Peer(DjangoPeer):
    app = "qraft"
    configuration = "qraftcluster, workers is the number of processes, its ORM broker; CONN_MAX_AGE=None"

    def workers(self, processes: int) -> list[list[str]]:
        return [self.django("qraftcluster", PEER_PROCESSES=str(processes))]
