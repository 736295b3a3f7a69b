"""The SQL files of the queue: beside the package in a checkout, inside it in a wheel.

``sql/<folder>/<name>.sql`` is the current text.  ``sql/released/<version>.txt`` lists the texts that a release has
shipped.  When one of them changes later, ``sql/released/<version>/<name>.sql`` keeps the shipped text, so that
migrations keep running the texts that they were written for.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FIRST = "0.1.0"
"""The first release.  Its queue cannot say which one it is."""


@cache
def folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "sql", package.parent / "sql"):
        if (candidate / "install.sql").is_file():
            return candidate
    message = (
        f"The SQL files of django_pgqueue are missing: neither {package} nor {package.parent} has sql/install.sql."
    )
    raise FileNotFoundError(message)


def path(name: str, *, release: str | None = None) -> Path:
    """Returns the file of ``name``, in whichever folder it is: the text that ``release`` ships, or the current one.

    >>> path("pgqueue_message_fail").relative_to(folder()).as_posix()
    'message/pgqueue_message_fail.sql'
    """
    for version in releases() if release else []:
        kept = folder() / "released" / version / f"{name}.sql"
        if number(version) >= number(release or "") and kept.is_file():
            return kept
    for found in (folder() / f"{name}.sql", *folder().glob(f"*/{name}.sql")):
        if found.is_file():
            return found
    message = f"There is no {name}.sql in {folder()}."
    raise FileNotFoundError(message)


def current(name: str) -> str:
    """Returns the current text of ``name``."""
    return path(name).read_text(encoding="utf-8")


def load(name: str, *, release: str | None = None) -> str:
    """Returns the text of ``name`` as ``release`` ships it: the current text, unless it has changed since.

    In ASCII: comments of 0.1.0 have "…", which a database in LATIN1 cannot store.

    >>> "create table pgqueue_message" in load("pgqueue_message", release="0.1.0")
    True
    """
    return path(name, release=release).read_text(encoding="utf-8").replace("…", "...")


def install_order(release: str | None = None) -> list[str]:
    """Returns the names of all texts that make a queue, in the order of install.sql, today or in ``release``."""
    if release in releases():
        return [name for name in shipped(release) if name != "uninstall"]
    return re.findall(r"^\\ir (?:\w+/)?(\w+)\.sql$", current("install"), re.MULTILINE)


def parts(release: str | None = None) -> list[str]:
    """Returns the names of the tables and functions that a queue has, today or in ``release``, in the order of
    install.sql: those that are also the name of a text.

    >>> {"pgqueue_message", "pgqueue_message_fail"} <= set(parts("0.1.0"))
    True
    """
    return [name for name in install_order(release) if _makes(name, load(name, release=release))]


def _makes(name: str, text: str) -> bool:
    return f"create table {name} " in text or f"create or replace function {name}(" in text


def releases() -> list[str]:
    """Returns the released versions, the oldest first."""
    return sorted((file.stem for file in (folder() / "released").glob("*.txt")), key=number)


def release_after(version: str) -> str | None:
    """Returns the release that follows ``version``.  None: there is none yet."""
    return next((later for later in releases() if number(later) > number(version)), None)


def shipped(release: str) -> dict[str, str]:
    """Returns the digests of the texts of ``release`` by name, in the order of install.sql, and of ``uninstall``."""
    return {name: digest for name, digest in _rows(release) if name != "migration"}


def last_migration(release: str) -> str:
    """Returns the name of the last migration that ``release`` has shipped."""
    return dict(_rows(release))["migration"]


def _rows(release: str) -> list[tuple[str, str]]:
    lines = (folder() / "released" / f"{release}.txt").read_text(encoding="utf-8").splitlines()
    return [(name, value) for name, value in map(str.split, lines)]


def number(version: str) -> list[int]:
    """Returns the sort key of a version.

    >>> number("0.10.0") > number("0.9.0")
    True
    """
    return [int(part) for part in re.findall(r"\d+", version)]
