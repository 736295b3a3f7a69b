"""In the demo's own PostgreSQL neither the site nor the worker is a superuser, and nothing that they do needs one."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from example_project import logins
from example_project.development.embedded_postgres.postmaster import free_port
from tests.project.example.demos import BANNER_END, BANNER_PASSWORD, BANNER_URL, ROOT, Demo, Home, Visitor, open_home
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("DATABASE_URL" in os.environ, reason="the login of a DATABASE_URL is taken as it is"),
]

ADMIN = "/admin/django_pgqueue/"
SENT = "example_project.shop.tasks."
SECONDS = 60
SESSIONS = """
select distinct usename::text, wait_event_type
from pg_stat_activity where usename is not null and pid <> pg_backend_pid()
"""
OWNERS = """
select distinct pg_get_userbyid(o.owner)::text
from (
    select relowner from pg_class where relnamespace = 'public'::regnamespace
    union all select proowner from pg_proc where pronamespace = 'public'::regnamespace
    union all select nspowner from pg_namespace where nspname = 'public'
    union all select datdba from pg_database where datname = current_database()
) as o (owner)
"""
ATTRIBUTES = """
select rolname::text from pg_roles
where rolname = any (%s) and not (rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)
"""


def rows(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query, values).fetchall()


@dataclass(frozen=True, slots=True)
class Shop:
    """An open one, its superuser, and somebody who is logged in to the admin."""

    home: Home
    superuser: str
    visitor: Visitor

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return rows(self.superuser, query, *values)

    def order(self) -> str:
        """The path of a new one."""
        fields = dict.fromkeys(re.findall(r'name="(quantity_\d+)"', self.visitor.get("/"))[:1], "1")
        return self.visitor.post("/", customer="Ada", email="ada@example.com", **fields)[0]

    def asks_for(self, order: str, job: str) -> int:
        """The message of a job that a customer may ask for."""
        self.visitor.post(order, f"{order}jobs/", job=job)
        newest = "select result_id::bigint from shop_orderjob where order_id = %s order by id desc limit 1"
        return int(self.rows(newest, int(order.strip("/").rpartition("/")[2]))[0][0])

    def statuses(self, order: str) -> dict[str, str]:
        return dict(self.visitor.get_json(f"{order}status.json")["jobs"])

    def ended(self, message: int) -> str:
        """How a message ended, or ends soon."""
        query = "select status, error_message from pgqueue_attempt where message_id = %s and final"
        found = wait_until(lambda: self.rows(query, message), f"message {message} ends", SECONDS)
        return str(found[0][0])

    def does(self, path: str, **fields: str) -> str:
        """Return the admin's message, which must tell of a success."""
        _, page = self.visitor.post(path, **fields)
        said = re.findall(r'<li class="success">(.*?)</li>', page, re.DOTALL)
        assert said, html.unescape(re.sub(r"<[^>]*>|\s+", " ", page))
        return str(said[0])

    def acts(self, model: str, action: str, key: object, **more: str) -> str:
        """An action for a row of a list of the queue."""
        return self.does(f"{ADMIN}{model}/", action=action, _selected_action=str(key), index="0", **more)


@contextmanager
def served(home: Home) -> Iterator[str]:
    """The address of the demo's own server for its superuser; it runs as long as somebody uses it, as we do here."""
    program = "from example_project.development import embedded_postgres as e; print(e.start(), flush=True); input()"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, cwd=ROOT, env=home.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdin
        assert user.stdout
        try:
            yield user.stdout.readline().strip()
        finally:
            user.stdin.write("\n")
            user.stdin.flush()
    wait_until(lambda: not home.leftovers(), "no process is left")


def opened(home: Home, demo: Demo, superuser: str) -> Shop:
    demo.hears(BANNER_END)
    visitor = Visitor(demo.hears(BANNER_URL))
    visitor.post("/admin/login/?next=/admin/", username="admin", password=demo.hears(BANNER_PASSWORD))
    return Shop(home, superuser, visitor)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with open_home() as home, served(home) as superuser, Demo(home, "--port", str(free_port())) as demo:
        yield opened(home, demo, superuser)
        assert demo.process.poll() is None, demo.said


def test_the_site_and_the_worker_have_their_own_logins(shop: Shop) -> None:
    with psycopg.connect(shop.superuser) as connection:
        connection.execute("lock table shop_product")
        visit = threading.Thread(target=shop.visitor.get, args=["/"])
        visit.start()

        try:
            wait_until(lambda: ("shop_web", "Lock") in shop.rows(SESSIONS), "the site waits for the table", SECONDS)
            names = {name for name, _ in shop.rows(SESSIONS)}
        finally:
            connection.rollback()
            visit.join()
    assert names == {"shop_web", "shop_worker", "pgqueue"}, "the last is this test"


def test_only_the_owner_owns_objects_and_no_login_has_extra_attributes(shop: Shop) -> None:
    assert shop.rows(OWNERS) == [("shop_owner",)]
    names = sorted(logins.ROLES.values())
    assert sorted(name for (name,) in shop.rows(ATTRIBUTES, names)) == names
    members = (
        "select r.rolname::text, m.roleid::regrole::text from pg_auth_members m join pg_roles r on r.oid = m.member"
    )
    granted = {pair for pair in shop.rows(members) if pair[0] in names}
    assert granted == {
        ("shop_owner", "pg_read_all_stats"),
        ("shop_web", "pgqueue_admin"),
        ("shop_worker", "pgqueue_consumer"),
    }


BY_NOBODY = (
    "select * from pg_authid",
    "create role somebody superuser",
    "alter role current_user superuser",
    "alter system set fsync = off",
    "copy (select 1) to program 'true'",
    "select pg_read_file('/etc/passwd')",
    "create extension file_fdw",
)
BY_THE_OWNER = (
    "drop table shop_order",
    "alter table shop_order add column more int",
    "alter table pgqueue_message disable trigger all",
    "truncate shop_order",
    "drop function pgqueue_worker_gone",
    "create table public.more ()",
    "create function public.more() returns int language sql return 1",
    "create schema more",
    "set role shop_owner",
    "insert into django_migrations (app, name, applied) values ('shop', 'more', now())",
    "update auth_permission set name = ''",
    "update django_admin_log set change_message = ''",
)
BY_THE_SITE = (
    "update auth_user set is_superuser = true",
    "select * from django_session",
    "select * from django_admin_log",
    "update shop_order set total = 0",
    "delete from shop_order",
    "insert into shop_product (name, slug, description, price, colour) values ('', '', '', 1, '')",
    "update shop_receipt set text = ''",
    "select * from pgqueue_binding",
    "delete from pgqueue_attempt",
    "select pgqueue_queue_pause('default')",
)


@pytest.mark.parametrize(
    ("login", "statement"),
    [
        *((login, statement) for login in logins.ROLES for statement in BY_NOBODY),
        *((login, statement) for login in ("web", "worker") for statement in BY_THE_OWNER),
        *(("worker", statement) for statement in BY_THE_SITE),
    ],
)
def test_a_login_has_only_the_rights_that_it_needs(shop: Shop, login: str, statement: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        rows(logins.url_of(login, shop.superuser), statement)


def test_each_login_has_its_own_password(shop: Shop) -> None:
    urls = {logins.url_of(login, shop.superuser) for login in logins.ROLES}
    passwords = {url.partition("://")[2].partition("@")[0].partition(":")[2] for url in (*urls, shop.superuser)}
    assert len(passwords) == len(logins.ROLES) + 1


# The shop


def test_an_order_and_all_its_jobs(shop: Shop) -> None:
    order = shop.order()
    for job in ("book", "remind", "quote", "redeem"):
        shop.asks_for(order, job)
    expected = {
        "Send receipt": "done",
        "Book courier": "done",
        "Send reminder": "scheduled",
        "Quote currencies": "done",
        "Redeem voucher": "failed",
    }
    try:
        wait_until(lambda: shop.statuses(order) == expected, "the jobs end", SECONDS)
    finally:
        assert shop.statuses(order) == expected


def test_a_changed_mind_and_a_report(shop: Shop) -> None:
    product = re.findall(r'name="(quantity_\d+)"', shop.visitor.get("/"))[0]
    where, page = shop.visitor.post(
        "/", customer="Ada", email="ada@example.com", **{product: "1", "change_mind": "yes"}
    )
    assert (where.split("/")[1], page.count("does not exist")) == ("changed-mind", 2)
    _, page = shop.visitor.post("/orders/", "/orders/report/")
    message = re.search(r"Job (\d+) will make the report", page)
    assert message
    assert shop.ended(int(message[1])) == "succeeded"


def test_the_warehouse_and_the_subscribers_of_its_parcels(shop: Shop) -> None:
    for _ in range(3):
        shop.order()
    for outcome, words in (("put_back", "comes back"), ("damaged", "has failed"), ("pack", "is packed")):
        assert words in shop.visitor.post("/warehouse/", outcome=outcome)[1]
    told = "select 1 from pgqueue_attempt where task = %s and status = 'succeeded'"
    wait_until(lambda: shop.rows(told, f"{SENT}tell_customer"), "the customer is told", SECONDS)
    # A screen is another program, which a person starts.
    assert command(shop.home, "screen", "door", "--lines", "1").startswith("parcel.packed: order ")


# The admin


def test_every_page_of_the_admin_is_shown(shop: Shop) -> None:
    waiting, seen = ["/admin/"], set[str]()
    while waiting and len(seen) < 150:
        path = waiting.pop(0)
        seen.add(path)
        page = shop.visitor.get(path)  # an error would be raised
        assert "permission denied" not in page, path
        links = [html.unescape(link) for link in re.findall(r'href="(/admin/[^"#?]*)"', page)]
        waiting += [link for link in dict.fromkeys(links) if link not in {*seen, *waiting} and "logout" not in link]
    models = {path.removeprefix(ADMIN).partition("/")[0] for path in seen if path.startswith(ADMIN)}
    assert {"message", "attempt", "queuestate", "channel", "worker", "schedule", "exchange", "binding"} <= models


def test_messages_are_postponed_made_ready_and_cancelled(shop: Shop) -> None:
    order = shop.order()
    one, other = shop.asks_for(order, "remind"), shop.asks_for(order, "remind")
    assert "postponed" in shop.acts("message", "postpone", one, confirmed="1", delay="1 hour")
    assert "ready" in shop.acts("message", "run_now", one)
    assert shop.ended(one) == "succeeded"
    assert "cancelled" in shop.acts("message", "cancel", other, confirmed="1")
    assert shop.ended(other) == "cancelled"


def test_a_message_is_changed(shop: Shop) -> None:
    message = shop.asks_for(shop.order(), "remind")
    page = f"{ADMIN}message/{message}/change/"
    due = re.search(r'name="dequeue_at" value="([^"]+)"', shop.visitor.get(page))
    assert due
    assert "was changed" in shop.does(page, dequeue_at=due[1], priority="7")
    assert shop.rows("select priority from pgqueue_message where id = %s", message) == [(7,)]


def test_a_failed_job_is_enqueued_again_and_all_of_them_by_an_edit(shop: Shop) -> None:
    failed = shop.asks_for(shop.order(), "redeem")
    assert shop.ended(failed) == "failed"
    attempt = shop.rows("select id from pgqueue_attempt where message_id = %s", failed)[0][0]
    shop.acts("attempt", "enqueue_again", attempt)
    again = "select message_id from pgqueue_attempt where headers ->> 'enqueued_again_from' = %s"
    [(second,)] = wait_until(lambda: shop.rows(again, str(failed)), "it fails again", SECONDS)
    path = f"{ADMIN}attempt/edit/?status__exact=failed"
    assert "begins as soon as a worker sees it" in shop.does(path, action="enqueue_again", confirmed="1")
    wait_until(lambda: shop.rows(again, str(second)), "it fails for a third time", SECONDS)


def test_queues_are_paused_and_channels_limited(shop: Shop) -> None:
    shop.does(f"{ADMIN}queuestate/add/", name="archive")
    shop.acts("queuestate", "resume", "archive")
    shop.acts("queuestate", "pause", "archive")
    shop.does(f"{ADMIN}channel/add/", name="acme", max_concurrency="2")
    shop.does(f"{ADMIN}channel/acme/change/", max_concurrency="3")
    shop.acts("channel", "release", "acme")


def test_exchanges_bindings_and_schedules_are_made_and_deleted(shop: Shop) -> None:
    shop.does(f"{ADMIN}exchange/add/", name="news")
    shop.does(f"{ADMIN}binding/add/", exchange="news", kind="topic", pattern="#", queue="papers", priority="0")
    [(binding,)] = shop.rows("select id from pgqueue_binding where exchange = 'news'")
    shop.does(f"{ADMIN}binding/{binding}/delete/", post="yes")
    shop.does(f"{ADMIN}exchange/news/delete/", post="yes")
    given = {"name": "weekly", "task": f"{SENT}make_sales_report", "args": "[]", "kwargs": "{}", "cron": "0 6 * * mon"}
    more = {"interval": "", "timezone": "UTC", "catch_up": "skip", "queue": "reports", "priority": "0"}
    shop.does(f"{ADMIN}schedule/add/", **given, **more, max_attempts="1")
    for action in ("pause", "resume", "run_now"):
        shop.acts("schedule", action, "weekly")
    shop.does(f"{ADMIN}schedule/weekly/delete/", post="yes")


def test_the_admin_of_the_shop_and_of_django(shop: Shop) -> None:
    order = shop.order()
    number = order.strip("/").rpartition("/")[2]
    shop.does(
        "/admin/shop/product/add/", name="Oolong", slug="oolong", description="Blue.", price="9.00", colour="#124"
    )
    shop.does(f"/admin/shop/order/{number}/delete/", post="yes")
    shop.does("/admin/auth/group/add/", name="Packers")
    password = {"password1": "four-green-leaves", "password2": "four-green-leaves", "usable_password": "true"}
    shop.does("/admin/auth/user/add/", username="grace", **password)
    [(user,)] = shop.rows("select id from auth_user where username = 'grace'")
    shop.does(f"/admin/auth/user/{user}/delete/", post="yes")


# Its owner, the database of an earlier version, and one that somebody gave


def command(home: Home, *words: str, **variables: str) -> str:
    """Return the output of a command of manage.py."""
    done = subprocess.run(
        [sys.executable, "example_project/manage.py", *words],
        cwd=ROOT,
        env={**home.environment, "DJANGO_SETTINGS_MODULE": "example_project.settings", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_owner_see_everything(shop: Shop) -> None:
    assert "No planned migration operations" in command(shop.home, "migrate", "--plan")
    found = command(shop.home, "qdoctor", "--json")
    assert "could-not-look" not in found
    assert "limited-sight" not in found
    command(shop.home, "check", "--database", "default")


def test_a_database_that_belongs_to_the_superuser_is_handed_over() -> None:
    """As an earlier version of the demo has left it."""
    with open_home() as home, served(home) as superuser:
        for word in ("migrate", "qbind", "fill_shop"):
            command(home, word, DATABASE_URL=superuser)
        assert ("pgqueue",) in rows(superuser, OWNERS)
        with Demo(home, "--port", str(free_port())) as demo:
            shop = opened(home, demo, superuser)
            assert set(shop.rows(OWNERS)) == {("shop_owner",)}
            assert "Grace Hopper" in shop.visitor.get("/orders/")
            assert shop.ended(1) == "succeeded"
            shop.does(f"{ADMIN}queuestate/add/", name="mail")


def test_a_database_url_is_taken_as_it_is() -> None:
    with open_home() as home, served(home) as given, Demo(Home(home.folder, given), "--port", str(free_port())) as demo:
        demo.hears(BANNER_END)
        assert "Earl Grey" in Visitor(demo.hears(BANNER_URL)).get("/")
        assert {name for name, _ in rows(given, SESSIONS)} == {"pgqueue"}
        assert rows(given, "select 1 from pg_roles where rolname = any (%s)", [*logins.ROLES.values()]) == []
