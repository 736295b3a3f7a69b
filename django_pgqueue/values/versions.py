"""Versions of deploys, and their order."""

from __future__ import annotations

import re
from functools import lru_cache

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.values.names import CONTROL_CHARACTER, is_text

MAX_BYTES = 100
_HASH = re.compile("(?!(19|20)[0-9]{6})(?=.*[0-9])(?=.*[a-f])[0-9a-f]{7,64}")
_NUMBER = re.compile("[0-9]+")


def is_version(value: object) -> bool:
    """
    >>> [is_version(value) for value in ("2024.10.1", "", 7, "a\\nb")]
    [True, False, False, False]
    """
    return is_text(value, max_bytes=MAX_BYTES) and value != "" and CONTROL_CHARACTER.search(value) is None


def checked(version: str | None) -> str | None:
    """Returns the VERSION of a backend.  Raises PgQueueError if it is none: a site may run without any check."""
    if version is None or is_version(version):
        return version
    message = (
        f"VERSION in the OPTIONS of TASKS is {version!r}: it must be a text of at most {MAX_BYTES} bytes, such as "
        "'2024.10.1'."
    )
    raise PgQueueError(message)


def looks_like_a_hash(version: str) -> bool:
    """Whether it may be the hash of a commit, which has no order.  A date with a letter is none.

    >>> [looks_like_a_hash(version) for version in ("2d06e61", "20241001a", "2024.10.1", "1234567", "decade")]
    [True, False, False, False, False]
    """
    return _HASH.fullmatch(version) is not None


@lru_cache(maxsize=1000)
def key(version: str) -> str:
    """Returns what sorts as versions do: numbers by their value, all else by characters.  SQL: pgqueue_version_key.

    >>> sorted(["2024.10.1", "2024.9", "2024.9.1"], key=key)
    ['2024.9', '2024.9.1', '2024.10.1']
    """
    return _NUMBER.sub(lambda number: number[0].lstrip("0").rjust(MAX_BYTES, "0"), version[:MAX_BYTES])
