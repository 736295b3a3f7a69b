"""Finds the SQL of the queue: beside the package in a checkout, inside it in a wheel.

``sql/<name>.sql`` is always what is in force today.  When a released text changes, the superseded text moves to
``sql/history/<migration>/<name>.sql``, so that old migrations keep running the text they were written for.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "sql", package.parent / "sql"):
        if (candidate / "install.sql").is_file():
            return candidate
    message = (
        f"The SQL files of django_pgqueue are missing: there is no sql/install.sql in {package} or {package.parent}."
    )
    raise FileNotFoundError(message)


def current(name: str) -> str:
    """The text of ``name`` that is in force today."""
    return (folder() / f"{name}.sql").read_text(encoding="utf-8")


def load(name: str, *, migration: str) -> str:
    """The text of ``name`` as ``migration`` knew it.

    >>> "create table pgqueue_message" in load("pgqueue_message", migration="0001_initial")
    True
    """
    superseded = folder() / "history" / migration / f"{name}.sql"
    return superseded.read_text(encoding="utf-8") if superseded.is_file() else current(name)
