"""Plain text for pipes and terminals without rich, safe for any text from the database."""

from __future__ import annotations

import getpass
import os
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "


def printable(text: str, encoding: str | None = None) -> str:
    r"""Escapes control characters, and characters that the encoding of the terminal does not have.

    >>> printable("mail \x1b[2J\n")
    'mail \\x1b[2J\\n'
    >>> printable("Aufträge", "ascii")
    'Auftr\\xe4ge'
    """
    shown = "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else each
        for each in text
    )
    encoding = encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def person() -> str:
    """Returns the name of the user who runs a command.  In a container a user may be a number without a name."""
    try:
        return printable(getpass.getuser())  # the environment may hold any bytes
    except (ImportError, KeyError, OSError):
        return f"user {os.getuid()}"


def shortened(text: str, length: int) -> str:
    """
    >>> shortened("a long name", 7)
    'a lo...'
    """
    return text if len(text) <= length else f"{text[: max(0, length - 3)]}..."


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[list[str]]:
    """Pads cells to the width of their column, right-aligned except for the columns in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [c.ljust(width) if n in left else c.rjust(width) for n, (c, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]


def table(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """
    >>> table([["queue", "ready"], ["mail", "3"]])
    ['queue  ready', 'mail       3']
    """
    return [GAP.join(cells).rstrip() for cells in aligned(rows, left=left)]
