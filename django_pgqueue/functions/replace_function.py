"""Migration operation that changes one function of sql/."""

from __future__ import annotations

import re
from typing import Any

from django.db import migrations

from django_pgqueue.functions import sql_files

HEAD = re.compile(r"^create or replace function (.*?)\nlanguage ", re.MULTILINE | re.DOTALL)
"""Name, parameters and result of a function."""
OF_TODAY = "\n-- Of today.\n"
"""The line of uninstall.sql above which it drops what only earlier releases have."""


class ReplaceFunction(migrations.RunSQL):
    """Operation that replaces the function of the release ``since`` with that of the release after it.

    It makes a function that ``since`` does not have, and drops one that the release after it no longer has.
    """

    def __init__(self, name: str, *, since: str) -> None:
        self.name, self.since = name, since
        if since not in sql_files.releases():
            message = f"ReplaceFunction({name!r}, since={since!r}): sql/released/{since}.txt does not exist."
            raise ValueError(message)
        following = sql_files.release_after(since)
        self.is_new = name not in sql_files.install_order(since)
        super().__init__(_change(name, since, following), reverse_sql=_change(name, following, since))

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__qualname__, [self.name], {"since": self.since}

    def describe(self) -> str:
        return f"Replace the function {self.name}"


def _change(name: str, before: str | None, after: str | None) -> list[Any]:
    """Returns the statements that lead from the text of one release to that of another.

    PostgreSQL keeps a function with other parameters beside the old one, and calls would be ambiguous.  It refuses to
    change the result type.  In both cases the old function is dropped first, as in the uninstall.sql of its release.
    """
    old, new = (
        sql_files.load(name, release=release) if name in sql_files.install_order(release) else ""
        for release in (before, after)
    )
    return [*(drops(name, before) if _heads(old) != _heads(new) else []), *([new] if new else [])]


def drops(name: str, release: str | None = None) -> list[str]:
    """Returns the statements that drop the functions of ``name``, today or in ``release``."""
    _, _, uninstall = sql_files.load("uninstall", release=release).rpartition(OF_TODAY)
    return re.findall(rf"^drop function if exists {name}\b.*;$", uninstall, re.MULTILINE)


def _heads(text: str) -> set[str]:
    return {" ".join(head.split()) for head in HEAD.findall(text)}
