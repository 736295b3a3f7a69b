"""Logins of the demo's own PostgreSQL: neither the site nor a worker is its superuser, or owns anything.

    owner    migrates, and runs what else a person does with manage.py
    web      the site and its admin: reads and writes the tables of the shop and of Django, and is an admin of the queue
    worker   reads and writes the data of the jobs, and is a consumer of the queue

Their rights are in shop/rights.sql. A DATABASE_URL has one login for all of them, which is used as it is.
"""

import hashlib
import hmac
import os
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg import sql

from django_pgqueue.functions import sql_files
from example_project.development.embedded_postgres import EmbeddedPostgresError, programs

VARIABLE = "PGQUEUE_EXAMPLE_LOGIN"
OWNER = "owner"
ROLES = {OWNER: "shop_owner", "web": "shop_web", "worker": "shop_worker"}
OF_COMMANDS = {"runserver": "web", "qworker": "worker", "screen": "worker"}
RIGHTS = Path(__file__).resolve().parent / "shop" / "rights.sql"

# Objects of an earlier version of the demo belong to the superuser; they are handed over together with the database.
HAND_OVER = """
do $$
declare
    v_command text;
begin
    for v_command in
        select format('alter %s %s owner to shop_owner', what, name)
        from (
            select 'database', quote_ident(current_database()), 1
            union all
            select 'schema', 'public', 2
            union all
            -- Indexes, and sequences of columns, go with their table.
            select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, 3
            from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S')
              and not exists (
                  select from pg_depend d
                  where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')
                    and c.relkind = 'S')
            union all
            select 'routine', p.oid::regprocedure::text, 4 from pg_proc p where p.pronamespace = 'public'::regnamespace
        ) as o (what, name, place)
        order by place
    loop
        execute v_command;
    end loop;
end
$$
"""
IS_HANDED_OVER = "select pg_get_userbyid(datdba) = 'shop_owner' from pg_database where datname = current_database()"


def of(command: str) -> str:
    """The login for a command of manage.py."""
    return OF_COMMANDS.get(command, OWNER)


def url_of(login: str, superuser: str) -> str:
    """The URL of a login, on the server with that superuser URL."""
    address = urlsplit(superuser)
    place = address.netloc.rpartition("@")[2]
    name = ROLES[login]
    return address._replace(netloc=f"{name}:{quote(password_of(name, superuser))}@{place}").geturl()


def password_of(name: str, superuser: str) -> str:
    """Derived from the superuser's, which it does not reveal: stored nowhere, and as lasting as the server's data."""
    secret = unquote(urlsplit(superuser).password or "")
    return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()


def provide(superuser: str) -> None:
    """Make the logins, and make the login "owner" the owner of the database, unless that was done before."""
    with psycopg.connect(superuser) as connection:
        connection.execute("select pg_advisory_xact_lock(hashtext('logins of the demo'))")
        if connection.execute(IS_HANDED_OVER).fetchone() == (True,):
            return
        for name in ROLES.values():
            # The server gets no password but a verifier, so that no password can appear in its log.
            told = connection.pgconn.encrypt_password(
                password_of(name, superuser).encode(), name.encode(), b"scram-sha-256"
            )
            connection.execute(
                sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(told.decode()))
            )
        connection.execute(HAND_OVER)


def grant(superuser: str) -> None:
    """Grant the logins their rights, after each migrate: new tables have none yet."""
    files = [word for file in (sql_files.folder() / "roles.sql", RIGHTS) for word in ("-f", str(file))]
    options = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"]
    done = programs.run("psql", [*options, *files], superuser, output=subprocess.PIPE)
    if done.returncode != 0:
        raise EmbeddedPostgresError(f"The logins did not get their rights:\n{done.stdout}{done.stderr}")


def current() -> str:
    """The login of this process."""
    login = os.environ.get(VARIABLE, OWNER)
    if login not in ROLES:
        raise EmbeddedPostgresError(f"{VARIABLE}={login!r} is none of {', '.join(ROLES)}.")
    return login
