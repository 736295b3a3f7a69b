"""Runs probes in the page's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue.admin.parts.database import alias
from django_pgqueue.monitoring.overview import queries

if TYPE_CHECKING:
    from collections.abc import Mapping


def rows(sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    return queries.rows(sql, parameters, using=alias())
