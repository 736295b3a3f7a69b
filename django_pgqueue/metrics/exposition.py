"""Metric families as the text that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric


class Collected:
    """Families that are already collected, for the encoder."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = list(families)

    def collect(self) -> list[Metric]:
        return self.families

    def describe(self) -> list[Metric]:
        return []


def encoded(families: Iterable[Metric], *, accept: str) -> tuple[str, bytes]:
    """Returns the content type and the text, in the format that the client asks for."""
    registry = CollectorRegistry()
    registry.register(Collected(families))
    encoder, content_type = choose_encoder(accept)
    text: Any = encoder(registry)
    return content_type, text
