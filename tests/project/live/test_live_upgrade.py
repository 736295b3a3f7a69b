"""A queue of a release is upgraded while its workers and web processes run and new ones start, and goes back again."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue.functions import sql_files
from tests.project.live.code import ENQUEUER, Program, released
from tests.support.databases import described, empty_database, install, session_in
from tests.support.pages import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sessions import Session

pytestmark = [pytest.mark.slow, pytest.mark.once]

RELEASE = "0.1.0"
ROWS = (Path(__file__).parent / "rows.sql").read_text()


class Deployment:
    """A database of a release, and the programs that use it."""

    def __init__(self, conninfo: str, folder: Path, session: Session) -> None:
        self.folder, self.session = folder, session
        self.database = conninfo_to_dict(conninfo)["dbname"]
        self.old, self.new = released(RELEASE, folder / "released"), ROOT
        self.programs: list[Program] = []
        self.columns = {table: self._columns(table) for table in ("pgqueue_message", "pgqueue_attempt")}

    def start(self, code: Path, *arguments: str) -> Program:
        program = Program(code, str(self.database), arguments, self.folder / f"output-{len(self.programs)}")
        self.programs.append(program)
        return program

    def manage(self, code: Path, *arguments: str) -> Program:
        return self.start(code, "-m", "tests.support.site.manage", *arguments)

    def worker(self, code: Path, *arguments: str) -> Program:
        flags = ("--threads", "4", "--queues", "default", *arguments)
        return self.manage(code, "qworker", *flags)

    def enqueuer(self, code: Path, name: str, *, open_seconds: float = 0) -> Program:
        return self.start(code, "-c", ENQUEUER, name, str(open_seconds))

    def migrated(self, *target: str) -> None:
        done = self.manage(self.new, "migrate", "django_pgqueue", *target)
        assert done.ends() == 0, done.lines

    def kept(self) -> dict[str, str]:
        """A digest of each column of the release, in the queue that no worker serves."""
        return {
            f"{table}.{column}": self.session.one(
                f"select md5(string_agg({column}::text, '|' order by id)) from {table} where queue = 'kept'"
            )
            for table, columns in self.columns.items()
            for column in columns
            if column not in ("check_at", "checks")  # workers look whether those waited for have ended
        }

    def written(self) -> Counter[str]:
        return Counter(self.session.column("select word from worker_row"))

    def goes_on(self, name: str) -> None:
        """Waits until jobs run that are enqueued from now on."""
        last = self.session.one("select last_value from pgqueue_message_id_seq")
        after = (
            "select count(*) from pgqueue_attempt where queue = 'default' and message_id > %s and status = 'succeeded'"
        )
        wait_until(lambda: self.session.one(after, [last]) >= 20, f"jobs run: {name}", 120)

    def is_drained(self) -> bool:
        waiting: int = self.session.one("select count(*) from pgqueue_message where queue = 'default'")
        return waiting == 0

    def workers_with_ends(self) -> set[str]:
        return set(self.session.column("select distinct worker from pgqueue_attempt where queue = 'default'"))

    def stop_all(self) -> None:
        for program in self.programs:
            print(f"--- {program.output.name}", *program.lines[-3:], sep="\n")
            with contextlib.suppress(Exception):
                program.process.kill()
                program.process.wait(10)

    def _columns(self, table: str) -> list[str]:
        query = "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum"
        return self.session.column(query, [table])


@pytest.fixture
def deployment(conninfo: str, tmp_path: Path) -> Iterator[Deployment]:
    with empty_database(conninfo, "live") as database, session_in(database) as session:
        install(session, RELEASE)
        session.rows("create table worker_row (word text not null)")
        made = Deployment(database, tmp_path, session)
        try:
            yield made
        finally:
            made.stop_all()


def test_nothing_is_lost_and_nothing_runs_twice(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """With transactions that overlap: the upgrade may wait for longer than they take."""
    monkeypatch.setenv("PGOPTIONS", "-c pgqueue.upgrade_lock_ms=10000")
    session = deployment.session
    session.connection.execute(ROWS)
    session.rows("analyze")
    kept, schema = deployment.kept(), described(session)
    assert session.one("select count(*) from pgqueue_message where queue = 'kept'") > 99_000
    old_worker, old_web = deployment.worker(deployment.old), deployment.enqueuer(deployment.old, "old web")
    slow_webs = [deployment.enqueuer(deployment.old, f"slow web {n}", open_seconds=0.3) for n in range(3)]
    deployment.goes_on("before the upgrade")

    early = deployment.worker(deployment.new)  # the order of a deploy went wrong
    assert early.ends() != 0
    assert any(f"has the queue of {RELEASE}, and this code needs" in line for line in early.lines), early.lines
    assert any("Run manage.py migrate django_pgqueue" in line for line in early.lines)

    early_web = deployment.enqueuer(deployment.new, "early web")  # works, or says the same, but nothing in between
    wait_until(lambda: len(enqueued(early_web)) > 30 or early_web.process.poll() is not None, "it has begun", 120)
    assert early_web.process.poll() is None or any("Run manage.py migrate" in line for line in early_web.lines)

    deployment.migrated()
    assert deployment.kept() == kept
    deployment.goes_on("old code after the upgrade")
    new_web = deployment.enqueuer(deployment.new, "new web")
    new_worker = deployment.worker(deployment.new)
    new_worker.says("started worker=")
    deployment.goes_on("old and new code")
    assert old_worker.stops() == 0
    deployment.goes_on("new workers, messages of both")
    assert len(deployment.workers_with_ends() - {"gone"}) == 2

    # And back: first the new programs stop, then the migration is taken back.
    old_worker = deployment.worker(deployment.old)
    old_worker.says("started worker=")
    assert (early_web.ends(), new_web.ends(), new_worker.stops()) == (0, 0, 0)
    deployment.migrated(sql_files.last_migration(RELEASE))
    assert described(session) == schema
    assert deployment.kept() == kept
    deployment.goes_on("old code, after the way back")

    assert [web.ends() for web in (old_web, *slow_webs)] == [0] * 4
    wait_until(deployment.is_drained, "all jobs have run", 120)
    assert old_worker.stops() == 0
    assert deployment.written() == Counter(chain(*map(enqueued, (old_web, *slow_webs, early_web, new_web))))
    ends = "select distinct status, attempt from pgqueue_attempt where queue = 'default'"
    assert [tuple(row) for row in session.rows(ends)] == [("succeeded", 1)]


def test_a_new_worker_whose_queue_goes_back_loses_nothing(deployment: Deployment) -> None:
    """The wrong order: it should have been stopped before."""
    deployment.migrated()
    web = deployment.enqueuer(deployment.old, "web")
    worker = deployment.worker(deployment.new, "--lock-seconds", "5", "--grace-seconds", "5")
    deployment.goes_on("after the upgrade")
    deployment.migrated(sql_files.last_migration(RELEASE))
    late = deployment.worker(deployment.new)
    assert late.ends() != 0
    old_worker = deployment.worker(deployment.old)
    deployment.goes_on("old code, after the way back")
    worker.stops()
    assert web.ends() == 0
    wait_until(deployment.is_drained, "all jobs have run", 120)
    assert old_worker.stops() == 0
    assert set(deployment.written()) == set(enqueued(web))
    assert session_statuses(deployment.session) <= {"succeeded", "lost"}


def enqueued(web: Program) -> list[str]:
    """The words that it has enqueued."""
    return [line for line in web.lines if re.search(r" \d+$", line)]


def session_statuses(session: Session) -> set[str]:
    return set(session.column("select distinct status from pgqueue_attempt where queue = 'default'"))
