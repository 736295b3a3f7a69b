"""Sizes as text for people."""

from __future__ import annotations


def size(value: int) -> str:
    """
    >>> size(512), size(20 * 2**20)
    ('512 B', '20 MB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    shown = float(value)
    for unit in units:
        if abs(shown) < 1024 or unit == units[-1]:
            return f"{shown:.0f} {unit}" if shown >= 10 or unit == "B" else f"{shown:.1f} {unit}"
        shown /= 1024
    raise AssertionError
