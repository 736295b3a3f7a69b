"""The page on backups: each of its commands is run, and what it says of a restored queue is so."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo

from django_pgqueue import functions
from django_pgqueue.worker.upkeep.maintenance import Maintenance
from example_project.development.embedded_postgres.binaries import Binaries
from tests.support.address import process_variables
from tests.support.databases import psql_program
from tests.support.fixtures.servers import server
from tests.support.pages import FOLDER, ROOT, blocks
from tests.support.server import Node, Server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["server"]

PAGE = FOLDER / "operate" / "backup.md"
DAY = "2020-02-03"
MAKE = f"""
select pgqueue_attempt_partition('{DAY}');
select pgqueue_channel_set('acme', p_max_concurrency => 1);
select pgqueue_message_create(to_jsonb(n), p_channel => 'acme') from generate_series(1, 3) n;
select pgqueue_message_create('"free"', 'other');
select id, attempt from pgqueue_message_dequeue(array['other'], 1, 60000, 'before');
select pgqueue_message_complete(id, 1, 'before') from pgqueue_message where queue = 'other';
insert into pgqueue_attempt (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
select n, 0, day, day, 1, 0, true, 'succeeded', 'default'
from generate_series(1001, 1010) n, unnest(array['{DAY} 12:00+00', '2020-02-04 12:00+00']::timestamptz[]) as day;
select pgqueue_step_partition('{DAY}');
insert into pgqueue_step (message_id, recorded_at, finished_at, attempt, kind, status, name)
select 1001, day, day, 1, 'step', 'done', 'charge'
from unnest(array['{DAY} 12:00+00', '2020-02-04 12:00+00']::timestamptz[]) as day;
"""
DEQUEUE = "select content from pgqueue_message_dequeue(array['default'], 10, 3600000, %s)"


def commands(word: str) -> str:
    """The block of the page in which a word stands."""
    [found] = [block.text for block in blocks(PAGE, "sh") if word in block.text]
    return found


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs the page's commands on the tests' server, with names of their own for its databases and its folder."""

    folder: Path
    prefix: str
    environment: dict[str, str]

    def run(self, text: str) -> None:
        text = re.sub(r"\bshop(?=\w*\b)(?![.\w]*/)", self.prefix, text.replace("/backup/", f"{self.folder}/"))
        text = text.replace("python manage.py", f"{sys.executable} -m tests.support.site.manage")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(dbname=f"{self.prefix}{name}", **self.address, autocommit=True)

    @property
    def address(self) -> dict[str, Any]:
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
        return {key: self.environment[name] for key, name in names.items() if name in self.environment}


@pytest.fixture
def shell(db: None, tmp_path: Path) -> Iterator[Shell]:
    """With a database that has a queue: one message runs in a channel that may run one, history of days long ago."""
    server = connections["default"].settings_dict
    prefix = f"{server['NAME']}_backup"
    environment = {
        **os.environ,
        **{f"PG{key}": str(server[key]) for key in ("HOST", "PORT", "USER", "PASSWORD") if server[key]},
        "PATH": f"{programs()}:{os.environ['PATH']}",
        **process_variables(f"{prefix}_migrated"),
    }
    shell = Shell(tmp_path, prefix, environment)
    names = [sql.Identifier(prefix + name) for name in ("", "_new", "_migrated", "_days")]
    with psycopg.connect(make_conninfo(dbname="postgres", **shell.address), autocommit=True) as admin:
        for name in names:
            admin.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        try:
            shell.run("createdb shop\npsql --dbname=shop --quiet --file=sql/install.sql")
            with shell.connect("") as connection:
                connection.execute(MAKE)
                assert connection.execute(DEQUEUE, ["before"]).fetchall() == [(1,)]
            yield shell
        finally:
            for name in names:
                admin.execute(sql.SQL("drop database if exists {} with (force)").format(name))


def programs() -> Path:
    """Find the programs that belong to the server: pg_dump refuses a newer one."""
    found = Path(psql_program()).parent
    if not all((found / name).exists() for name in ("pg_dump", "pg_restore", "psql", "createdb", "vacuumdb")):
        pytest.skip(f"needs pg_dump and pg_restore, which are not in {found} (Debian: apt install postgresql-client)")
    return found


def check(connection: psycopg.Connection[Any]) -> None:
    """The queue goes on from where it was: nothing is lost, the limit holds, and its channel goes on."""
    assert connection.execute("select count(*) from pgqueue_attempt").fetchone() == (21,)
    assert connection.execute("select count(*) from pgqueue_step").fetchone() == (2,)
    assert connection.execute(DEQUEUE, ["after"]).fetchall() == [], "one runs, and no more may"
    ended = connection.execute(
        "select pgqueue_message_complete(id, 1, 'before') from pgqueue_message where worker = 'before'"
    )
    assert ended.fetchall() == [(True,)]
    assert connection.execute(DEQUEUE, ["after"]).fetchall() == [(2,)]
    assert connection.execute(DEQUEUE, ["after"]).fetchall() == []
    [created] = connection.execute("select pgqueue_message_create('\"new\"')").fetchall()
    assert created not in connection.execute("select message_id from pgqueue_attempt").fetchall(), "ids are used once"
    assert connection.execute("select * from pgqueue_channel_repair()").fetchall() == []


def test_a_whole_database(shell: Shell) -> None:
    shell.run(commands("--dbname=shop_new /backup"))
    shell.run(commands("vacuumdb"))
    with shell.connect("_new") as connection:
        check(connection)
    restored = replace(shell, environment=shell.environment | process_variables(f"{shell.prefix}_new"))
    restored.run("python manage.py qdoctor --json > /backup/found.json || true")
    found = json.loads((shell.folder / "found.json").read_text())["findings"]
    about = re.compile("(missing|changed|unknown)-(table|function|index|trigger)")
    assert [finding for finding in found if about.fullmatch(finding["name"])] == []


@pytest.mark.parametrize("way", ["as the page says", "inserts"])
def test_data_into_the_tables_of_migrate(shell: Shell, way: str) -> None:
    """The channel that had a running job stood still for ever: it was counted twice."""
    text = commands("load-via-partition-root")
    if way == "inserts":
        text = text.replace("--format=custom", "--inserts")
        text = re.sub(r"pg_restore .*(--dbname=\S+) (\S+)", r"psql --quiet --set=ON_ERROR_STOP=1 \1 --file=\2", text)
    shell.run(text)
    with shell.connect("_migrated") as connection:
        in_default = connection.execute("select count(*) from pgqueue_attempt_default").fetchone()
        assert in_default == (20,), "no row is lost for want of a partition"
        assert functions.channels_miscounted(connection, limit=10) == []
        Maintenance(history_days=None).do_if_due(connection)
        assert connection.execute("select count(*) from pgqueue_attempt_default").fetchone() == (0,)
        check(connection)


def test_a_dump_that_names_the_partitions(shell: Shell) -> None:
    shell.run(commands("shop_days"))
    with shell.connect("_days") as connection:
        assert connection.execute("select count(*) from pgqueue_attempt_20200203").fetchone() == (10,)
        check(connection)


def test_messages_restored_alone_are_dequeued_and_a_worker_recounts_channels(shell: Shell) -> None:
    shell.run("""
        pg_dump --format=custom --data-only --table=pgqueue_message --file=/backup/messages.dump shop
        createdb shop_days
        psql --dbname=shop_days --quiet --file=sql/install.sql
        pg_restore --data-only --exit-on-error --dbname=shop_days /backup/messages.dump
    """)
    with shell.connect("_days") as connection:
        connection.execute("select pgqueue_channel_set('acme', p_max_concurrency => 1)")
        Maintenance(history_days=None).do_if_due(connection)
        assert connection.execute("select name, running from pgqueue_channel").fetchall() == [("acme", 1)]
        assert connection.execute(DEQUEUE, ["after"]).fetchall() == []
        connection.execute(
            "select pgqueue_message_complete(id, 1, 'before') from pgqueue_message where worker = 'before'"
        )
        assert connection.execute(DEQUEUE, ["after"]).fetchall() == [(2,)]


# To a moment


def settings(word: str) -> str:
    [found] = [block.text for block in blocks(PAGE, "ini") if word in block.text]
    return found


def test_to_a_moment(server: Server) -> None:
    def local(text: str) -> str:
        return text.replace("/backup/", f"{server.folder}/backup/").replace("/restored/", f"{server.folder}/restored/")

    for name in ("backup/wal", "restored"):
        folder = server.folder / name
        folder.mkdir(parents=True)
        server.account.own(folder)
    server.account.own(server.folder / "backup")

    def run(text: str) -> None:
        variables = {
            "PATH": f"{server.programs.folder}:{os.environ['PATH']}", "PGHOST": "127.0.0.1", "PGUSER": "pgqueue",
            "PGPORT": str(server.primary.port), "PGPASSWORD": server.password,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-euc", local(text)],
            cwd="/", env=variables, capture_output=True, text=True, check=False, **server.account.run_as,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def set_up(data: Path, text: str) -> None:
        with (data / "postgresql.conf").open("a") as file:
            file.write(local(text))

    server.primary.end(signal.SIGINT)
    set_up(server.primary.data, settings("archive_mode"))
    server.primary.start()
    install = ["--quiet", "--set=ON_ERROR_STOP=1", f"--file={ROOT / 'sql' / 'install.sql'}"]
    address = f"postgresql://pgqueue:{server.password}@127.0.0.1:{server.primary.port}/storm"
    psql = str(Binaries.found().program("psql"))
    subprocess.run([psql, address, *install], check=True, stdout=subprocess.DEVNULL)
    run(commands("pg_basebackup"))

    with server.connect() as admin:
        admin.execute("select pgqueue_message_create(to_jsonb(n)) from generate_series(1, 3) n")
        take = "select id from pgqueue_message_dequeue(array['default'], 1, 60000, 'w')"
        assert admin.execute(take).fetchall() == [(1,)]
        admin.execute("select pgqueue_message_complete(1, 1, 'w')")
        assert admin.execute(take).fetchall() == [(2,)]
        [moment] = admin.execute("select clock_timestamp()").fetchone() or [None]
        admin.execute("select pgqueue_message_complete(2, 1, 'w')")
        admin.execute("select pgqueue_message_create('4')")
        [name] = admin.execute("select pg_walfile_name(pg_switch_wal())").fetchone() or [""]
        wait_until((server.folder / "backup" / "wal" / name).exists, "the log is archived")
    server.primary.end(signal.SIGINT)

    run(commands("recovery.signal"))
    data = server.folder / "restored" / "data"
    target = re.sub(r"(?<=recovery_target_time = ')[^']+", str(moment), settings("recovery_target_time"))
    set_up(data, target)
    log = server.folder / "postgres.log"
    node = Node(data, server.primary.port, server.programs, server.account, log)
    server.primary = node
    node.start()
    with server.connect() as admin:
        wait_until(lambda: admin.execute("select pg_is_in_recovery()").fetchone() == (False,), "it has been promoted")
        found = admin.execute("select id, worker from pgqueue_message order by id").fetchall()
        assert found == [(2, "w"), (3, None)], "what has ended since runs once more, what was enqueued since is gone"
        assert admin.execute("select message_id, status from pgqueue_attempt").fetchall() == [(1, "succeeded")]
        admin.execute(next(block.text for block in blocks(PAGE, "sql") if "setval" in block.text).encode())
        assert admin.execute("select pgqueue_message_create('5')").fetchone() == (1_000_004,)


# To another server


def test_to_another_server_while_jobs_run(server: Server) -> None:
    server.primary.end(signal.SIGINT)
    with (server.primary.data / "postgresql.conf").open("a") as file:
        file.write("wal_level = logical\n")
    server.primary.start()
    environment = {
        **os.environ, "PATH": f"{server.programs.folder}:{os.environ['PATH']}", "PGHOST": "127.0.0.1",
        "PGUSER": "pgqueue", "PGPORT": str(server.primary.port), "PGPASSWORD": server.password,
    }  # fmt: skip
    shell = Shell(server.folder, "storm", environment)
    shell.run("psql --dbname=shop --quiet --file=sql/install.sql")
    first = "select pgqueue_attempt_maintain(), pgqueue_step_maintain()"
    with shell.connect("") as old:
        wait_until(lambda: old.execute(first).fetchone() == (0, 0), "all partitions are there")
    text = commands("create subscription")
    # Here both are on one server, where PostgreSQL cannot make the slot by the same command.
    slot = "select pg_create_logical_replication_slot('upgrade', 'pgoutput')"
    text = re.sub(r"(psql --dbname=shop_new --command=.create subscription)", rf'psql -d shop -c "{slot}"\n\1', text)
    address = f"host=127.0.0.1 port={server.primary.port} user=pgqueue password={server.password} dbname="
    text = text.replace("connection 'dbname=", f"connection '{address}")
    shell.run(text.replace('publication upgrade"\n', 'publication upgrade with (create_slot = false)"\n'))
    with shell.connect("") as old, shell.connect("_new") as new:
        old.execute(MAKE)
        assert old.execute(DEQUEUE, ["before"]).fetchall() == [(1,)]
        old.execute("update pgqueue_attempt set queue = 'mail' where message_id = 1001")

        def has_all() -> bool:
            tables = ("pgqueue_message", "pgqueue_attempt", "pgqueue_channel", "pgqueue_lane")
            rows = "select array_agg(row_to_json({0})::text order by row_to_json({0})::text) from {0}"
            # On one server, a copy that begins and the transaction that drops the subscription wait for each other.
            begins = new.execute("select from pg_subscription_rel where srsubstate <> 'r'").fetchall()
            return not begins and all(
                [*old.execute(rows.format(name).encode())] == [*new.execute(rows.format(name).encode())]
                for name in tables
            )

        wait_until(has_all, "the copy has everything")
    shell.run(commands("drop subscription"))
    with shell.connect("_new") as new:
        check(new)
