"""Lists the SQL texts that a release ships, in sql/released/VERSION.txt; part of making a release.

    python -m tests.support.released_sql 0.1.0

From then on ``unfinished`` finds what lacks when one of these texts changes.  tests/project/test_upgrade.py asks it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from django.db.migrations.loader import MigrationLoader

from django_pgqueue import migrations as shipped_migrations
from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.replace_function import ReplaceFunction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MIGRATIONS = Path(shipped_migrations.__path__[0])
CHANGE = "Run: python -m tests.support.change_sql"


def ship(version: str, migrations: Path = MIGRATIONS) -> Path:
    """Writes the list of a release, which never changes, and returns its path."""
    listed = sql_files.folder() / "released" / f"{version}.txt"
    listed.parent.mkdir(exist_ok=True)
    rows = {"migration": newest_migration(migrations).stem, **in_force()}
    with listed.open("x", encoding="utf-8") as file:
        file.writelines(f"{name} {value}\n" for name, value in rows.items())
    return listed


def newest_migration(migrations: Path) -> Path:
    return max(migrations.glob("[0-9]*.py"))


def in_force() -> dict[str, str]:
    """The digests of the texts that the next release ships."""
    return {name: digest(sql_files.current(name)) for name in [*sql_files.install_order(), "uninstall"]}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def replaced() -> set[tuple[str, str]]:
    """The function and the release of every ReplaceFunction of the migrations."""
    migrations = MigrationLoader(None).disk_migrations
    operations = [operation for key in migrations if key[0] == APP_LABEL for operation in migrations[key].operations]
    return {(found.name, found.since) for found in operations if isinstance(found, ReplaceFunction)}


def unfinished() -> list[str]:
    """Return what lacks until a database of any release gets the texts that are in force, each with the next step."""
    replacements = replaced()
    return [problem for release in sql_files.releases() for problem in _unfinished_since(release, replacements)]


def _unfinished_since(release: str, replacements: Collection[tuple[str, str]]) -> Iterator[str]:
    following = sql_files.release_after(release)
    before, after = sql_files.shipped(release), sql_files.shipped(following) if following else in_force()
    for name in sorted(before.keys() | after.keys()):
        if name in before and not is_kept(name, release):
            yield f"{name}.sql is not the text that {release} has shipped, and that one is not kept. {CHANGE} {name}"
        elif before.get(name) != after.get(name) and is_function(name, release) and (name, release) not in replacements:
            yield f"{name}.sql has changed since {release}, and no migration replaces it. {CHANGE} {name}"


def is_kept(name: str, release: str) -> bool:
    """Whether the migrations find the text of ``name`` as ``release`` has shipped it."""
    try:
        text = sql_files.path(name, release=release).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return digest(text) == sql_files.shipped(release)[name]


def is_function(name: str, release: str | None = None) -> bool:
    """Whether ReplaceFunction changes it: tables are altered by hand, and uninstall.sql is not part of a queue."""
    return "create or replace function" in sql_files.load(name, release=release)


if __name__ == "__main__":
    print(f"Written: {ship(sys.argv[1])}")
