"""A number of messages: counted, or estimated."""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.monitoring.overview import formatting

DIGITS = 3
"""Of an estimate.  More would claim what a sample cannot know."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A count, or "about so many"."""

    value: int
    is_exact: bool = True

    def __str__(self) -> str:
        """
        >>> str(Figure(145_012)), str(Figure.about(145_012.4))
        ('145\xa0012', '~145\xa0000')
        """
        return f"{'' if self.is_exact else '~'}{formatting.number(self.value)}"

    def __bool__(self) -> bool:
        return self.value > 0

    @property
    def plural(self) -> int:
        """The number by which words are chosen: "about 1" has the plural, as 2 has.

        >>> Figure(1).plural, Figure(1, is_exact=False).plural, Figure(0).plural
        (1, 2, 2)
        """
        return 1 if self == Figure(1) else max(2, self.value)

    @classmethod
    def about(cls, estimate: float, *, at_least: int = 0) -> Figure:
        """
        >>> Figure.about(1_234.5, at_least=1_233), Figure.about(0.4)
        (Figure(value=1233, is_exact=False), Figure(value=0, is_exact=False))
        """
        whole = round(estimate)
        return cls(max(at_least, round(whole, DIGITS - len(str(whole)))) if whole else at_least, is_exact=False)


NONE = Figure(0)
