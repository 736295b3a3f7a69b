"""django-ox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.peers.django_peer import DjangoPeer

if TYPE_CHECKING:
    from collections.abc import Sequence


class Peer(DjangoPeer):
    app = "django_ox"
    configuration = "ox_worker --concurrency 4, as it comes (looks every second); --processes; CONN_MAX_AGE=None"

    def workers(self, processes: int) -> list[list[str]]:
        return [self.django("ox_worker", "--concurrency", "4", "--processes", str(processes), "-v", "0")]

    def bulk(self, numbers: Sequence[int]) -> Any:
        from django_ox.bulk import enqueue_many

        enqueue_many(self.noop, [((number,), {}) for number in numbers])
