"""Who logs in to the demo's own PostgreSQL: neither the site nor a worker is its superuser, or owns anything.

    owner    migrates, and what else a person does with manage.py
    web      the site and its admin: reads and writes the tables of the shop and of Django, and is an admin of the queue
    worker   reads and writes what the jobs do, and is a consumer of the queue

What they may do stands in shop/rights.sql. A DATABASE_URL has one login for all of them, which is taken as it is.
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
from example_project.embedded_postgres import EmbeddedPostgresError, programs

VARIABLE = "PGQUEUE_EXAMPLE_LOGIN"
OWNER = "owner"
ROLES = {OWNER: "shop_owner", "web": "shop_web", "worker": "shop_worker"}
OF_COMMANDS = {"runserver": "web", "qworker": "worker", "screen": "worker"}
RIGHTS = Path(__file__).resolve().parent / "shop" / "rights.sql"

# What an earlier version of the demo has made belongs to the superuser; it is handed over together with the database.
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
    """Who runs a command of manage.py."""
    return OF_COMMANDS.get(command, OWNER)


def url_of(login: str, superuser: str) -> str:
    """The address at which a login finds the server whose superuser has that address."""
    address = urlsplit(superuser)
    place = address.netloc.rpartition("@")[2]
    name = ROLES[login]
    return address._replace(netloc=f"{name}:{quote(password_of(name, superuser))}@{place}").geturl()


def password_of(name: str, superuser: str) -> str:
    """Made of the superuser's, of which it tells nothing: kept nowhere, and as lasting as the data of the server."""
    secret = unquote(urlsplit(superuser).password or "")
    return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()


def provide(superuser: str) -> None:
    """Make the logins, and their owner the owner of the database, unless that was done before."""
    with psycopg.connect(superuser) as connection:
        connection.execute("select pg_advisory_xact_lock(hashtext('logins of the demo'))")
        if connection.execute(IS_HANDED_OVER).fetchone() == (True,):
            return
        for name in ROLES.values():
            # What the server is told is no password, so that none can stand in its log.
            told = connection.pgconn.encrypt_password(
                password_of(name, superuser).encode(), name.encode(), b"scram-sha-256"
            )
            connection.execute(
                sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(told.decode()))
            )
        connection.execute(HAND_OVER)


def grant(superuser: str) -> None:
    """After each migrate: what was made anew has no rights yet."""
    files = [word for file in (sql_files.folder() / "roles.sql", RIGHTS) for word in ("-f", str(file))]
    options = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"]
    done = programs.run("psql", [*options, *files], superuser, output=subprocess.PIPE)
    if done.returncode != 0:
        raise EmbeddedPostgresError(f"The logins did not get their rights:\n{done.stdout}{done.stderr}")


def current() -> str:
    """That of this process."""
    login = os.environ.get(VARIABLE, OWNER)
    if login not in ROLES:
        raise EmbeddedPostgresError(f"{VARIABLE}={login!r} is none of {', '.join(ROLES)}.")
    return login
