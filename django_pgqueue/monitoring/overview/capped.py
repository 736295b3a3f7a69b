"""A count that stops at a limit of its own."""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.monitoring.overview import formatting


@dataclass(frozen=True, slots=True)
class Capped:
    """A count, or "at least so many"."""

    value: int
    is_capped: bool = False

    def __str__(self) -> str:
        """
        >>> str(Capped(12)), str(Capped(10_000, True))
        ('12', '10\xa0000+')
        """
        return f"{formatting.number(self.value)}{'+' if self.is_capped else ''}"

    @property
    def plural(self) -> int:
        """The number by which words are chosen: "1+" has the plural, as 2 has."""
        return 2 if self.is_capped else self.value

    def __bool__(self) -> bool:
        return self.value > 0

    @classmethod
    def of(cls, count: int, most: int) -> Capped:
        return cls(min(count, most), count > most)
