"""What the doctor can find."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    INFO = 1
    """Worth knowing."""
    WARNING = 2
    """It costs speed or space, or will be an error."""
    ERROR = 3
    """Jobs do not run, or may be lost."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    severity: Severity
    found: str
    """What it is, with its values."""
    remedy: str
    command: str = ""
    """To be typed: SQL for psql, or a command of the shell."""
    values: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, Kind] = {}
"""Everything that can be found, by name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can be found.  Its name is what people look for in the documentation."""

    name: str
    severity: Severity
    """As it mostly is."""
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
