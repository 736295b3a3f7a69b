"""Findings and their kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    INFO = 1
    """Worth knowing."""
    WARNING = 2
    """It costs speed or space, or becomes an error later."""
    ERROR = 3
    """Jobs do not run, or may be lost."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    severity: Severity
    found: str
    """A description with its values."""
    remedy: str
    command: str = ""
    """A line to type: SQL for psql, or a command of the shell."""
    values: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, Kind] = {}
"""All kinds of findings, by name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding.  People search the documentation by name."""

    name: str
    severity: Severity
    """The usual severity."""
    remedy: str

    def __post_init__(self) -> None:
        KINDS[self.name] = self

    def found(
        self,
        text: str,
        command: str = "",
        *,
        severity: Severity | None = None,
        remedy: str | None = None,
        **values: Any,
    ) -> Finding:
        return Finding(
            name=self.name,
            severity=self.severity if severity is None else severity,
            found=text,
            remedy=self.remedy if remedy is None else remedy,
            command=command,
            values=values,
        )
