"""django-tasks-db, the backend nearest to Django's own."""

from __future__ import annotations

from tests.bench.peers.django_peer import DjangoPeer


class Peer(DjangoPeer):
    app = "django_tasks_db"
    configuration = (
        "db_worker --no-startup-delay, as it comes (looks every second); one process for each; CONN_MAX_AGE=None"
    )

    def workers(self, processes: int) -> list[list[str]]:
        return [self.django("db_worker", "--no-startup-delay", "-v", "0")] * processes
