"""Which product answers: other servers speak PostgreSQL's protocol, too, and say so in ``version()``."""

from __future__ import annotations

MARKS = {
    "CockroachDB": "CockroachDB",
    "-YB-": "YugabyteDB",
    "Redshift": "Amazon Redshift",
    "Greenplum": "Greenplum",
    "Materialize": "Materialize",
}
"""Parts of the text that ``version()`` returns, and what they are the mark of."""
MAX_SHOWN = 60


def other_product(version: str) -> str | None:
    """Returns the name of a product that is not PostgreSQL, by the result of its ``version()``; None for PostgreSQL.

    A text that does not begin as PostgreSQL's does is returned itself, shortened.

    >>> other_product("PostgreSQL 11.2-YB-2.18.4.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 15.0.3")
    'YugabyteDB'
    """
    for mark, name in MARKS.items():
        if mark in version:
            return name
    return None if version.startswith("PostgreSQL ") else version[:MAX_SHOWN]
