"""The migrations make of a queue of any release that of today: see docs/pages/contributing/change-sql.md."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.db.migrations.loader import MigrationLoader

from django_pgqueue.conf import APP_LABEL
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.replace_function import HEAD, ReplaceFunction, drops
from tests.support.change_sql import change
from tests.support.databases import described, empty_database, install, migrate, session_in
from tests.support.released_sql import MIGRATIONS, is_function, ship, unfinished

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django import Settings

FAIL = "pgqueue_message_fail"
RUN = "Run: python -m tests.support.change_sql {name}"
NOT_KEPT = "{name}.sql is not the text that 0.1.0 has shipped, and that one is not kept. " + RUN
NOT_REPLACED = "{name}.sql has changed since 0.1.0, and no migration replaces it. " + RUN


def replaced() -> set[tuple[str, str]]:
    migrations = MigrationLoader(None).disk_migrations
    operations = [operation for key in migrations if key[0] == APP_LABEL for operation in migrations[key].operations]
    return {(found.name, found.since) for found in operations if isinstance(found, ReplaceFunction)}


def upgrade(conninfo: str, release: str) -> None:
    """A queue of ``release`` becomes the one of today, and goes back to what it was and to nothing."""
    with (
        empty_database(conninfo, "fresh") as fresh,
        empty_database(conninfo, "old") as old,
        session_in(fresh) as of_today,
        session_in(old) as session,
    ):
        install(of_today)
        install(session, release)
        before = described(session)
        migrate(old, to=sql_files.last_migration(release), fake=True)
        migrate(old)
        assert described(session) == described(of_today)
        migrate(old, to=sql_files.last_migration(release))
        assert described(session) == before
        migrate(old, back=True)
        assert {kind: found for kind, found in described(session).items() if found} == {}


def test_every_release_gets_the_texts_that_are_in_force() -> None:
    assert unfinished(replaced()) == []


def test_the_first_migration_is_that_of_the_first_release() -> None:
    first = importlib.import_module("django_pgqueue.migrations.0001_initial").RELEASE
    assert sql_files.releases()[:1] in ([], [first])


def test_a_queue_of_every_release_becomes_that_of_today(conninfo: str) -> None:
    for release in sql_files.releases():
        upgrade(conninfo, release)


@pytest.mark.parametrize("name", [name for name in sql_files.install_order() if is_function(name)])
def test_what_replaces_a_function_finds_its_head_and_how_to_drop_it(name: str) -> None:
    text = sql_files.current(name)
    assert text.count("create or replace function ") == len(HEAD.findall(text)) == len(drops(name))


# The same, with releases that are made up: a copy of sql/ and of the migrations, which ship and change.


class Project:
    def __init__(self, root: Path, package: str) -> None:
        self.root, self.package = root, package
        self.sql, self.migrations = root / "sql", root / package

    def edit(self, name: str, text: str, instead: str) -> None:
        path = sql_files.path(name)
        assert path.read_text().count(text) == 1
        path.write_text(path.read_text().replace(text, instead))

    def reword(self, name: str, words: str) -> None:
        """Changes a text, and nothing of what it does."""
        self.edit(name, "as $$\n", f"as $$\n    -- {words}\n")

    def change(self, name: str) -> list[str]:
        return list(change(name, self.migrations))

    def unfinished(self) -> list[str]:
        self.forget()
        return unfinished(replaced())

    def upgrade(self, conninfo: str, release: str) -> None:
        self.forget()
        upgrade(conninfo, release)

    def forget(self) -> None:
        """The migrations read the texts when they are imported."""
        for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Project:
    """A checkout before its first release."""
    made = Project(tmp_path, "migrations_of_a_made_up_project")
    shutil.copytree(sql_files.folder(), made.sql, ignore=shutil.ignore_patterns("released"))
    made.migrations.mkdir()
    for name in ("__init__.py", "0001_initial.py"):
        shutil.copy(MIGRATIONS / name, made.migrations)
    monkeypatch.setattr(sql_files, "folder", lambda: made.sql)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {APP_LABEL: made.package}
    return made


def test_before_the_first_release_a_text_is_changed_and_that_is_all(project: Project) -> None:
    project.reword(FAIL, "Once.")
    assert project.change(FAIL) == ["Nothing has been released: change the text, and that is all."]
    assert project.unfinished() == []


def test_a_changed_text_without_a_migration_is_found(project: Project) -> None:
    ship("0.1.0", project.migrations)
    assert project.unfinished() == []
    project.reword(FAIL, "Once.")
    assert project.unfinished() == [NOT_KEPT.format(name=FAIL)]


def test_a_kept_text_alone_is_not_enough(project: Project) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    (project.migrations / "0002_after_0_1_0.py").unlink()
    assert project.unfinished() == []
    project.reword(FAIL, "Once.")
    assert project.unfinished() == [NOT_REPLACED.format(name=FAIL)]


def test_with_the_migration_of_the_script_an_old_queue_becomes_that_of_today(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    made = project.migrations / "0002_after_0_1_0.py"
    operation = 'ReplaceFunction("pgqueue_message_fail", since="0.1.0"),'
    kept, added, _ = project.change(FAIL)
    assert kept == f"Kept: {project.sql}/released/0.1.0/pgqueue_message_fail.sql"
    assert added == f"Added to {made}: {operation}"
    project.reword(FAIL, "Once.")
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")

    project.change(FAIL)
    project.change("pgqueue_now")
    assert made.read_text().count(operation) == 1
    assert made.read_text().count("ReplaceFunction(") == 2


def test_without_the_migration_the_comparison_finds_the_difference(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    (project.migrations / "0002_after_0_1_0.py").unlink()
    project.reword(FAIL, "Once.")
    with pytest.raises(AssertionError, match="functions"):
        project.upgrade(conninfo, "0.1.0")


def test_with_other_parameters_there_is_one_function_in_both_directions(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    project.edit(FAIL, "\n) returns", ",\n    p_note text default null\n) returns")
    [drop] = re.findall(rf"^drop function if exists {FAIL}\(.*\);$", sql_files.current("uninstall"), re.MULTILINE)
    project.edit("uninstall", drop, drop.replace(");", ", text);"))
    assert project.unfinished() == [NOT_KEPT.format(name="uninstall")]
    project.edit("uninstall", drop.replace(");", ", text);"), drop)
    project.change("uninstall")
    project.edit("uninstall", drop, drop.replace(");", ", text);"))
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")
    replace = ReplaceFunction(FAIL, since="0.1.0")
    assert heads(replace.sql) == [drop, f"create or replace function {FAIL}("]
    assert heads(replace.reverse_sql) == [drop.replace(");", ", text);"), f"create or replace function {FAIL}("]


def heads(texts: Any) -> list[str]:
    return [text.partition("\n")[0] for text in texts]


def test_a_new_function_and_one_that_is_gone(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change("uninstall")
    project.change("pgqueue_queue_pause")
    sql_files.path("pgqueue_queue_pause").unlink()
    (project.sql / "queue" / "pgqueue_queue_count.sql").write_text(
        "create or replace function pgqueue_queue_count() returns bigint\nlanguage sql\nset search_path from current\n"
        "as $$ select count(*) from pgqueue_queue $$;\n"
    )
    project.edit("install", "pgqueue_queue_pause.sql", "pgqueue_queue_count.sql")
    project.edit("uninstall", "pgqueue_queue_pause(text, text)", "pgqueue_queue_count()")
    assert project.unfinished() == [NOT_REPLACED.format(name="pgqueue_queue_count")]
    project.change("pgqueue_queue_count")
    assert project.unfinished() == []
    project.upgrade(conninfo, "0.1.0")


def test_a_changed_table_is_altered_by_hand(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    _, left = project.change("pgqueue_queue")
    made = project.migrations / "0002_after_0_1_0.py"
    assert left == f"Now alter the table in {made}: RunSQL, with reverse_sql and state_operations."
    project.edit("pgqueue_queue", "    paused_by text,\n", "    paused_by text,\n    note      text,\n")
    assert project.unfinished() == []
    with pytest.raises(AssertionError, match="columns"):
        project.upgrade(conninfo, "0.1.0")

    there, back = ("alter table pgqueue_queue " + words for words in ("add column note text", "drop column note"))
    made.write_text(made.read_text().replace("\n    ]", f"\n        migrations.RunSQL({there!r}, {back!r}),\n    ]"))
    project.upgrade(conninfo, "0.1.0")


def test_releases_follow_each_other(project: Project, conninfo: str) -> None:
    ship("0.1.0", project.migrations)
    project.change(FAIL)
    project.reword(FAIL, "Once.")
    ship("0.2.0", project.migrations)
    project.forget()
    project.change("pgqueue_now")
    project.reword("pgqueue_now", "Once.")
    ship("0.10.0", project.migrations)
    project.change(FAIL)
    project.reword(FAIL, "Twice.")
    assert sorted(path.name for path in project.migrations.glob("0*.py")) == [
        "0001_initial.py",
        "0002_after_0_1_0.py",
        "0003_after_0_2_0.py",
        "0004_after_0_10_0.py",
    ]
    assert project.unfinished() == []
    for release in sql_files.releases():
        project.upgrade(conninfo, release)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_after_the_change_the_shipped_text_comes_from_git(project: Project) -> None:
    git = ["git", "-C", str(project.root), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "Released"], check=True)
    shipped = sql_files.current(FAIL)
    ship("0.1.0", project.migrations)
    project.reword(FAIL, "Once.")
    project.change(FAIL)
    assert (project.sql / "released" / "0.1.0" / f"{FAIL}.sql").read_text() == shipped
    assert project.unfinished() == []


def test_a_shipped_text_that_nobody_has_is_asked_for(project: Project) -> None:
    ship("0.1.0", project.migrations)
    project.reword(FAIL, "Once.")
    with pytest.raises(SystemExit, match=r"Write it to .*/released/0\.1\.0/pgqueue_message_fail\.sql"):
        project.change(FAIL)


def test_the_script_refuses_a_name_that_is_no_part_of_a_queue(project: Project) -> None:
    ship("0.1.0", project.migrations)
    with pytest.raises(SystemExit, match=r"pgqueue_message_fall\.sql is no part of a queue"):
        project.change("pgqueue_message_fall")


def test_a_release_that_is_not_listed_is_refused(project: Project) -> None:
    with pytest.raises(ValueError, match=r"sql/released/0\.1\.0\.txt does not exist"):
        ReplaceFunction(FAIL, since="0.1.0")
