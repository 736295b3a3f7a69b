"""Each incident of the operations handbook happens here: its words are found, and after its cure they are gone."""

from __future__ import annotations

import datetime as dt
import re
import shlex
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.monitoring.doctor import Subject, examine, snapshots
from django_pgqueue.monitoring.overview import host, long_transactions
from tests.support import pages
from tests.support.address import conninfo
from tests.support.admin_page import Page
from tests.support.fixtures.admin import claim, complete, fail, root, send, shop_tasks, sign_in, sql
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.admin_page import Visitor

__all__ = ["root", "shop_tasks"]

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

TEXT = (pages.FOLDER / "operate" / "incidents.md").read_text()
OVERVIEW = "/admin/django_pgqueue/overview/"
NOW_GONE = dt.timedelta(seconds=-1)


class Incident:
    """A part of the page: the words that it quotes, and the commands that cure it."""

    def __init__(self, title: str) -> None:
        self.name = title.lower().replace(" ", "_")
        text = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        self.text = text
        first, _, doctor = text.partition("`qdoctor`")
        self.on_overview = re.findall(r"^> (.+)$", first, re.MULTILINE)
        self.in_doctor = re.findall(r"^> (.+)$", doctor, re.MULTILINE)
        self.cures = re.findall(r"```(sh|sql)\n(.+?)\n```", text, re.DOTALL)


TITLES = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)


def quoted(words: str, text: str) -> bool:
    pattern = ".+?".join(re.escape(part.strip()) for part in words.split("…") if part.strip())
    return re.search(pattern.replace(r"\ ", r"\s+"), text) is not None


class Site:
    """What the incidents of a test have in common: other sessions, clocks, and what ends with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: psycopg.Connection[Any]) -> None:
        self.patch = monkeypatch
        self.session = session
        self.skew = dt.timedelta()

    def doctor(self) -> str:
        patient = Subject("default", now=lambda: dt.datetime.now(dt.UTC) + self.skew)
        return "\n".join(finding.found for finding in examine(patient))

    # What goes wrong

    def no_worker(self) -> None:
        send(queue="mail")
        send(queue="mail")

    def paused_and_forgotten(self) -> None:
        sign_in(queues=["mail"])
        self.no_worker()
        control.pause("mail", by="Ada")
        sql("update pgqueue_queue set paused_at = now() - interval '30 h'")

    def a_poison_job(self) -> None:
        send(task="shop.tasks.crash")
        for _ in range(3):
            sql("update pgqueue_message set alone_at = null, dequeue_at = 0")
            [held] = claim()
            functions.worker_died(connection, held.worker, ids=[held.id], attempts=[held.attempt], running=[True])

    def a_failing_schedule(self) -> None:
        sql(
            "insert into pgqueue_schedule (name, task, next_at, interval_ms) "
            "values ('nightly', 'shop.tasks.report', 0, 1000)"
        )
        for at in (0, 1000, 2000):
            sql("select pgqueue_schedule_fire('nightly', array[%s::bigint], %s, %s)", at, at, at + 1000)
            fail(claim()[0], KeyError("secret"))

    def a_held_snapshot(self) -> None:
        self.patch.setattr(snapshots, "OLD", NOW_GONE)
        for_six_minutes = long_transactions.PINNED.replace("a.xact_start", "(a.xact_start - interval '6 min')")
        self.patch.setattr(long_transactions, "PINNED", for_six_minutes)
        self.session.execute("begin isolation level repeatable read")
        self.session.execute("select from pg_class limit 1")

    def clock_skew(self) -> None:
        self.skew = dt.timedelta(seconds=10.2)
        self.patch.setattr(host, "clock", lambda: dt.datetime.now(dt.UTC) + self.skew)

    def the_disk_is_nearly_full(self) -> None:
        self.fill_disks(0.96)
        if not host.filling_disks(using="default"):
            pytest.skip("the server of the tests runs on another host, whose disk nobody sees from here")

    def fill_disks(self, share: float) -> None:
        usage = SimpleNamespace(total=500_000_000_000, free=round(500_000_000_000 * (1 - share)))
        self.patch.setattr(shutil, "disk_usage", lambda _: usage)

    def a_flood_by_one_tenant(self) -> None:
        sign_in(queues=["mail"])
        for _ in range(600):
            send(queue="mail", channel="tenant-7")
        sql("update pgqueue_message set dequeue_at = pgqueue_now() - 600000, created_at = now() - interval '10 min'")

    def a_deploy_lacks_a_task(self) -> None:
        sign_in()
        send(task="shop.tasks.new")
        [held] = claim()
        functions.message_park(connection, [(held, "no such task")], worker=held.worker)
        sql("update pgqueue_message set unknown_since = unknown_since - 600000")

    def a_stuck_dependency(self) -> None:
        sql("select pgqueue_message_create_after(array[%s], '1')", send())
        sql("update pgqueue_message set check_at = check_at - 600000 where check_at is not null")

    # What the page's commands do here

    def run(self, kind: str, command: str) -> None:
        if kind == "sql":
            sql(command.replace("4711", str(self.session.info.backend_pid)).replace("%", "%%"))
            return
        match shlex.split(command):
            case ["python", "manage.py", "qworker", "--queues", name]:
                # A worker process takes what waits; here the test does it in its place.
                sign_in("worker-new", [name])
                while held := claim(name):
                    complete(held[0])
            case ["python", "manage.py", name, *arguments]:
                call_command(name, *arguments)
                while functions.edit_step(connection) is not None:
                    pass
            case ["timedatectl", *_]:
                self.skew = dt.timedelta()
            case ["df", "-h"]:
                self.fill_disks(0.5)
            case other:
                pytest.fail(f"The test does not know how to do this: {other}")


@pytest.fixture
def site(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    session = psycopg.connect(conninfo(), autocommit=True, application_name="a long report")
    yield Site(monkeypatch, session)
    session.close()


def test_the_page_has_ten_incidents() -> None:
    assert len(TITLES) == 10


@pytest.mark.parametrize("title", TITLES)
def test_the_words_of_an_incident_are_found_until_it_is_cured(title: str, site: Site, root: Visitor) -> None:
    incident = Incident(title)
    assert incident.on_overview or incident.in_doctor
    assert incident.cures
    stage: Callable[[], None] = getattr(site, incident.name)
    stage()

    def overview() -> str:
        return Page(root.client.get(OVERVIEW)).root.text

    for words in incident.on_overview:
        assert quoted(words, overview()), f"the overview has not: {words}"
    for words in incident.in_doctor:
        assert quoted(words, site.doctor()), f"qdoctor has not: {words}\n{site.doctor()}"
    for kind, command in incident.cures:
        site.run(kind, command)
    if "fades within a day" in incident.text:
        sql("delete from pgqueue_attempt")
    for told, quotes in ((overview, incident.on_overview), (site.doctor, incident.in_doctor)):
        wait_until(lambda: not any(quoted(words, told()) for words in quotes), "the words are gone")  # noqa: B023
