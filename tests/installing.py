"""The order in which sql/install.sql installs the queue, for those who do it without psql."""

from __future__ import annotations

import re

from django_pgqueue.functions import sql_files

INCLUDED = re.compile(r"^\\ir (\w+)\.sql$", re.MULTILINE)


def install_order() -> list[str]:
    """Names, without .sql."""
    return INCLUDED.findall((sql_files.folder() / "install.sql").read_text(encoding="utf-8"))
