"""A queue with roles: in a database of its own, because roles change who may call its functions."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.functions import sql_files
from example_project.database import database_url
from tests.support.databases import empty_database, psql
from tests.support.fixtures.sessions import connect, session, sessions, test_database
from tests.support.sessions import IDLE_SESSIONS, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["connect", "session", "sessions", "test_database"]

ROLES = ("producer", "consumer", "reader", "admin")
PASSWORD = "not a secret: of a database that is dropped"
INSTALL, UNINSTALL, ROLES_FILE, DROP_FILE = (
    str(sql_files.folder() / f"{name}.sql") for name in ("install", "uninstall", "roles", "roles_drop")
)


class Guarded:
    """The database, and who may log in to it: one of each role, its owner, and somebody without any role."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.name = str(conninfo_to_dict(conninfo)["dbname"])

    def login(self, who: str) -> str:
        return f"{self.name}_{who}"

    def conninfo_of(self, who: str) -> str:
        return make_conninfo(self.conninfo, user=self.login(who), password=PASSWORD)

    @contextmanager
    def session(self, who: str | None = None, *, autocommit: bool = True) -> Iterator[Session]:
        """A session of a role; None: of the superuser of the tests."""
        conninfo = self.conninfo if who is None else self.conninfo_of(who)
        with psycopg.connect(conninfo, autocommit=autocommit, options="-c statement_timeout=45s") as connection:
            yield Session(connection)
            if not autocommit:
                connection.rollback()

    def environment(self, who: str) -> dict[str, str]:
        """For processes that log in as ``who``."""
        parts = urlsplit(database_url("test"))
        place = parts.netloc.rpartition("@")[2]
        netloc = f"{quote(self.login(who), safe='')}:{quote(PASSWORD, safe='')}@{place}"
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.support.site.settings",
            "DATABASE_URL": parts._replace(netloc=netloc, path=f"/{self.name}").geturl(),
            "PGQUEUE_TEST_DATABASE": self.name,
        }


@pytest.fixture(scope="session")
def guarded(test_database: str) -> Iterator[Guarded]:
    with ExitStack() as stack:
        maintenance = stack.enter_context(
            psycopg.connect(test_database, autocommit=True, application_name=IDLE_SESSIONS)
        )
        name = f"{conninfo_to_dict(test_database)['dbname']}_guarded"
        logins = [f"{name}_{who}" for who in (*ROLES, "owner", "nobody")]
        stack.callback(_drop_roles, maintenance, [*logins, *(f"pgqueue_{role}" for role in ROLES)])
        guarded = Guarded(stack.enter_context(empty_database(test_database, "guarded")))
        for login in logins:
            maintenance.execute(
                sql.SQL("create role {} login password {}").format(sql.Identifier(login), sql.Literal(PASSWORD))
            )
        with guarded.session() as session:
            session.rows(f'alter database "{name}" owner to "{guarded.login("owner")}"')
            session.rows(f'alter schema public owner to "{guarded.login("owner")}"')
        _run(guarded.conninfo_of("owner"), INSTALL)
        _run(guarded.conninfo, ROLES_FILE)
        for role in ROLES:
            maintenance.execute(
                sql.SQL("grant {} to {}").format(sql.Identifier(f"pgqueue_{role}"), sql.Identifier(guarded.login(role)))
            )
        yield guarded


def _run(conninfo: str, file: str) -> None:
    done = psql(conninfo, "-f", file)
    assert done.returncode == 0, done.stderr


def _drop_roles(maintenance: psycopg.Connection, names: list[str]) -> None:
    for name in names:
        # Roles belong to the whole server: other tests that run beside these may still use those of the queue.
        try:
            maintenance.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))
        except psycopg.errors.DependentObjectsStillExist:
            assert name.startswith("pgqueue_")
