"""Does the dull part of changing a text of sql/ that a release has shipped: see docs/pages/contributing/change-sql.md.

    python -m tests.support.change_sql pgqueue_message_fail

It keeps the shipped text in sql/released/VERSION/, and adds the operation to the migration that is not released yet,
which it makes if needed.  It may be run before the change or after it, and again.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.installed import version_in
from tests.support.released_sql import MIGRATIONS, digest, is_function, newest_migration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AFTER = "from django.db import migrations\n"
UPGRADE = "from django_pgqueue.functions.upgrade import Upgrade\n"
IMPORT = "from django_pgqueue.functions.replace_function import ReplaceFunction\n"
MIGRATION = '''"""Brings a queue of {release} to the SQL of today."""

from django.db import migrations

from django_pgqueue.functions.upgrade import Upgrade


class Migration(Upgrade):
    dependencies = [("{app}", "{before}")]
    since = "{release}"
    # The tables that the operations alter, or on which they make triggers or indexes.
    locks = ()

    operations = [
    ]
'''
VERSION = "pgqueue_version"


def change(name: str, migrations: Path = MIGRATIONS) -> Iterator[str]:
    """Does it, and yields what was done and what is left to do."""
    if not sql_files.releases():
        yield "Nothing has been released: change the text, and that is all."
        return
    release = sql_files.releases()[-1]
    known = {*sql_files.shipped(release), *sql_files.install_order()}
    if name not in known:
        message = f"{name}.sql is no part of a queue: neither {release} nor sql/install.sql has it."
        raise SystemExit(message)
    if name in sql_files.shipped(release):
        yield f"Kept: {_keep(name, release)}"
    if name == "uninstall":
        return
    migration = _unreleased(release, migrations)
    if name == VERSION:
        _write_version(release)
    yield from _migrate(name, release, migration)
    if name != VERSION and VERSION in sql_files.install_order():
        yield from change(VERSION, migrations)


def _migrate(name: str, release: str, migration: Path) -> Iterator[str]:
    if is_function(name, release):
        yield from _add_operation(f'ReplaceFunction("{name}", since="{release}"),', migration)
        if name != VERSION:
            yield (
                "When its parameters change: change its line in sql/uninstall.sql and sql/roles.sql too, and keep the "
                "former one in uninstall.sql, among those of earlier releases."
            )
    else:
        yield f"Now alter the table in {migration}: RunSQL, with reverse_sql and state_operations. Name it in locks."


def _keep(name: str, release: str) -> Path:
    """Keeps the text that ``release`` has shipped, whether it is still in force or only in the history of git."""
    kept = sql_files.folder() / "released" / release / f"{name}.sql"
    for text in _texts(name, kept):
        if digest(text) == sql_files.shipped(release)[name]:
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(text, encoding="utf-8")
            return kept
    message = f"Neither sql/ nor git has the text that {release} has shipped. Write it to {kept}."
    raise SystemExit(message)


def _texts(name: str, kept: Path) -> Iterator[str]:
    """Every text of ``name`` that is known here.  None is in force when the change removes it."""
    for file in (kept, sql_files.folder() / f"{name}.sql", *sql_files.folder().glob(f"*/{name}.sql")):
        if file.is_file():
            yield file.read_text(encoding="utf-8")
    try:
        for line in _git("rev-list", "--all", "--objects", "--", ".").splitlines():
            blob, _, path = line.partition(" ")
            if path.endswith(f"/{name}.sql"):
                yield _git("cat-file", "blob", blob)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pass  # no git, or no repository


def _git(*words: str) -> str:
    command = ["git", "-C", str(sql_files.folder()), *words]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def _write_version(release: str) -> None:
    """Lets pgqueue_version return the coming release, which this change makes necessary."""
    file = sql_files.path(VERSION)
    text = file.read_text(encoding="utf-8")
    if sql_files.number(version_in(text)) <= sql_files.number(release):
        file.write_text(text.replace(f"'{version_in(text)}'", f"'{coming_release()}'"), encoding="utf-8")


def coming_release() -> str:
    """Returns the version of the project or, while that is the released one, the next one."""
    release = sql_files.releases()[-1]
    project = sql_files.folder().parent / "pyproject.toml"
    if project.is_file():
        written: str = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
        if sql_files.number(written) > sql_files.number(release):
            return written
    first, second, _ = sql_files.number(release)
    return f"{first}.{second + 1}.0"


def _unreleased(release: str, migrations: Path) -> Path:
    """The migration that comes after those of ``release``: made, unless it is there."""
    newest = newest_migration(migrations)
    if newest.stem != sql_files.last_migration(release):
        return newest
    made = migrations / f"{int(newest.stem[:4]) + 1:04}_after_{release.replace('.', '_')}.py"
    made.write_text(MIGRATION.format(release=release, app=APP_LABEL, before=newest.stem), encoding="utf-8")
    return made


def _add_operation(operation: str, migration: Path) -> Iterator[str]:
    text = migration.read_text(encoding="utf-8").replace("operations = []\n", "operations = [\n    ]\n")
    if operation in text:
        return
    before, found, after = text.rpartition("\n    ]\n")
    if not found:
        message = f"{migration} has no list of operations that ends with a line of its own. Add: {operation}"
        raise SystemExit(message)
    if IMPORT not in text:
        place, import_ = (UPGRADE, IMPORT + UPGRADE) if UPGRADE in text else (AFTER, f"{AFTER}\n{IMPORT}")
        before = before.replace(place, import_, 1)
    migration.write_text(f"{before}\n        {operation}{found}{after}", encoding="utf-8")
    yield f"Added to {migration}: {operation}"


if __name__ == "__main__":
    for line in change(sys.argv[1]):
        print(line)
