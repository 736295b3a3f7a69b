"""Publish to an exchange; bindings, which the code declares and a command makes, say who gets the message."""

from __future__ import annotations

import asyncio
import datetime as dt
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import SyncToAsync
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction

from django_pgqueue.checks import check_bindings
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import (
    ContentTooLarge,
    InvalidContent,
    InvalidMessage,
    InvalidPattern,
    UnknownExchange,
)
from django_pgqueue.models import Binding, Exchange as ExchangeRow, Message
from django_pgqueue.routing import (
    Exchange,
    Published,
    apublish,
    declare_binding,
    declare_exchange,
    publish,
    subscribe,
)
from django_pgqueue.routing.declared import DECLARED
from django_pgqueue.tasks import task
from django_pgqueue.testing import clock, drain
from tests.support.fixtures.backend import no_queries
from tests.support.sessions import concurrently
from tests.support.site import subscribers
from tests.support.site.tasks import write

if TYPE_CHECKING:
    from pytest_django.fixtures import DjangoAssertNumQueries

pytestmark = pytest.mark.django_db

ORDERS = Exchange("orders")
PATH = "tests.support.site.subscribers"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declarations of other modules of the tests are no matter here."""
    monkeypatch.setattr(DECLARED, "exchanges", set())
    monkeypatch.setattr(DECLARED, "bindings", {})
    monkeypatch.setattr(DECLARED, "subscriptions", {})


def qbind(*flags: str) -> list[str]:
    out = StringIO()
    call_command("qbind", *flags, stdout=out)
    return out.getvalue().splitlines()


class TestPublish:
    def test_publish_returns_the_enqueued_messages(self) -> None:
        ORDERS.declare()
        ORDERS.bind("order.#", queue="warehouse")
        ORDERS.bind("order.created", task=subscribers.mail)
        published = publish("orders", "order.created", {"order": 7})
        assert [(each.queue, each.task) for each in published] == [("mail", f"{PATH}.mail"), ("warehouse", None)]
        assert {each.id for each in published} == set(Message.objects.values_list("pk", flat=True))
        assert all(isinstance(each, Published) for each in published)

    def test_publish_is_one_statement(self, django_assert_num_queries: DjangoAssertNumQueries) -> None:
        ORDERS.declare()
        for n in range(5):
            ORDERS.bind("#", queue=f"queue-{n}")
        with django_assert_num_queries(1):
            assert len(publish("orders", "order.created", 1)) == 5

    def test_an_unknown_exchange_is_an_error_and_breaks_no_transaction(self) -> None:
        with transaction.atomic():
            with pytest.raises(UnknownExchange, match=r"'nowhere' in the database 'default'.*declare_exchange.*qbind"):
                publish("nowhere", "a", 1)
            assert Message.objects.count() == 0  # the transaction is alive

    def test_options_reach_the_messages(self) -> None:
        ORDERS.declare()
        ORDERS.bind("#", queue="warehouse", priority=4, max_attempts=None)
        with clock() as now:
            publish("orders", "a", 1, headers={"trace": "x"}, priority=9, run_after=dt.timedelta(minutes=1))
            publish("orders", "a", 1, run_after=now.at + dt.timedelta(minutes=2))
            first, second = Message.objects.order_by("pk")
            assert first.headers == {"trace": "x", "exchange": "orders", "routing_key": "a"}
            assert (first.priority, second.priority, first.max_attempts) == (9, 4, None)
            assert [round((each.dequeue_at - now.at).total_seconds(), 2) for each in (first, second)] == [60, 120]

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            (lambda: publish("", "a", 1), InvalidMessage),
            (lambda: publish("x" * 256, "a", 1), InvalidMessage),
            (lambda: publish("orders", None, 1), InvalidMessage),  # type: ignore[arg-type]
            (lambda: publish("orders", "a\x00", 1), InvalidMessage),
            (lambda: publish("orders", "\ud800", 1), InvalidMessage),
            (lambda: publish("orders", "ä" * 128, 1), InvalidMessage),
            (lambda: publish("orders", "a", object()), InvalidContent),
            (lambda: publish("orders", "a", 1, headers={"trace": float("nan")}), InvalidContent),
            (lambda: publish("orders", "a", 1, headers={"exchange": "x"}), InvalidMessage),
            (lambda: publish("orders", "a", 1, headers={"routing_key": "x"}), InvalidMessage),
            (lambda: publish("orders", "a", 1, priority=101), InvalidMessage),
            (lambda: publish("orders", "a", 1, run_after="soon"), InvalidMessage),  # type: ignore[arg-type]
            (lambda: Exchange("orders", max_content_bytes=9).publish("a", "0123456789"), ContentTooLarge),
            (lambda: ORDERS.bind("a*", queue="x"), InvalidPattern),
            (lambda: ORDERS.bind("x" * 256, queue="x"), InvalidPattern),
            (lambda: ORDERS.bind(r"(a)\1", queue="x", regex=True), InvalidPattern),
            (lambda: ORDERS.bind("a", queue=""), InvalidMessage),
            (lambda: ORDERS.bind("a"), InvalidMessage),
            (lambda: ORDERS.bind("a", queue="x", task=subscribers.audit), InvalidMessage),
            (lambda: ORDERS.bind("a", task=write), InvalidTask),  # it takes no content and no routing key
            (lambda: ORDERS.bind("a", task=len), InvalidTask),  # type: ignore[arg-type]
            (lambda: ORDERS.bind("a", queue="x", priority=-101), InvalidMessage),
            (lambda: ORDERS.bind("a", queue="x", max_attempts=0), InvalidMessage),
            (lambda: ORDERS.route("a\x00"), InvalidMessage),
            (lambda: subscribe("", "#"), InvalidMessage),
            (lambda: subscribe("orders", "a*"), InvalidPattern),
            (lambda: subscribe("orders", "x" * 256), InvalidPattern),
        ],
    )
    def test_invalid_arguments_are_refused_before_any_sql(self, wrong: Any, error: type[Exception]) -> None:
        with no_queries(), pytest.raises(error):
            wrong()

    def test_publish_works_in_async_code(self) -> None:
        ORDERS.declare()
        with pytest.raises(UnknownExchange):
            asyncio.run(nowhere())


async def nowhere() -> None:
    try:
        await apublish("nowhere", "a", 1)
    finally:
        SyncToAsync.single_thread_executor.submit(connections.close_all).result()


class TestBindings:
    def test_bindings_are_created_changed_and_removed(self) -> None:
        assert (ORDERS.declare(), ORDERS.declare()) == (True, False)
        assert (ORDERS.bind("#", queue="a"), ORDERS.bind("#", queue="a")) == (True, False)
        assert ORDERS.bind("#", queue="a", priority=1) is True
        assert [route.queue for route in ORDERS.route("x")] == ["a"]
        assert (ORDERS.unbind("#", queue="a"), ORDERS.unbind("#", queue="a")) == (True, False)
        assert ORDERS.route("x") == []
        assert (ORDERS.delete(), ORDERS.delete()) == (True, False)

    def test_a_binding_takes_queue_priority_and_attempts_of_its_task(self) -> None:
        ORDERS.declare()
        ORDERS.bind("order.*", task=subscribers.mail)
        [route] = ORDERS.route("order.x")
        assert (route.queue, route.task, route.priority, route.max_attempts) == ("mail", f"{PATH}.mail", 7, 3)
        assert route.patterns == ["order.*"]
        assert ORDERS.unbind("order.*", task=subscribers.mail)

    @pytest.mark.parametrize("pattern", ["(", "a{9,1}", "[z-a]"])
    def test_a_regular_expression_that_postgresql_refuses_breaks_no_transaction(self, pattern: str) -> None:
        ORDERS.declare()
        with transaction.atomic():
            with pytest.raises(InvalidPattern) as refused:
                ORDERS.bind(pattern, queue="a", regex=True)
            assert pattern in str(refused.value)
            assert "CONTEXT" not in str(refused.value)
            assert Binding.objects.count() == 0

    def test_binding_to_an_unknown_exchange_is_an_error(self) -> None:
        with pytest.raises(UnknownExchange, match="'orders'"):
            ORDERS.bind("#", queue="a")


class TestSubscribe:
    def test_a_subscription_touches_no_database(self) -> None:
        with no_queries():
            assert subscribe("orders", "order.#")(subscribers.audit) is subscribers.audit
            declare_exchange("invoices")
            declare_binding("orders", "#", queue="warehouse")

    def test_the_task_gets_content_and_routing_key(self) -> None:
        for each in (subscribers.audit, subscribers.with_context, subscribers.in_a_loop):
            subscribe("orders", "order.#")(each)
        qbind()
        publish("orders", "order.created", {"order": 7})
        results = {result.task.module_path: result.return_value for result in drain()}
        assert results == {
            f"{PATH}.audit": [{"order": 7}, "order.created"],
            f"{PATH}.with_context": [1, {"order": 7}, "order.created"],
            f"{PATH}.in_a_loop": [{"order": 7}, "order.created"],
        }

    def test_the_decorator_on_a_plain_function_is_an_error(self) -> None:
        with pytest.raises(TypeError, match=r"must stand above @task: .*plain is not a task"):

            @task
            @subscribe("orders", "#")
            def plain(content: Any, routing_key: str) -> None: ...

    def test_a_task_that_cannot_take_both_arguments_is_refused(self) -> None:
        with pytest.raises(InvalidTask, match=r"takes_one is subscribed.*def takes_one\(content, routing_key\)"):
            subscribe("orders", "#")(subscribers.takes_one)

    def test_a_task_that_no_longer_exists_is_not_declared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        subscribe("orders", "#")(subscribers.audit)
        assert len(DECLARED.bindings_in("default")) == 1
        monkeypatch.delattr(subscribers, "audit")
        assert DECLARED.bindings_in("default") == {}


class TestQbind:
    def test_qbind_creates_the_declared_and_reports_it(self) -> None:
        subscribe("orders", "order.#")(subscribers.mail)
        subscribe("orders", "d$", regex=True)(subscribers.audit)
        declare_binding("orders", "#", queue="warehouse", priority=2)
        declare_exchange("invoices")
        assert qbind("--dry-run") == (
            said := [
                "default: + exchange invoices",
                "default: + exchange orders",
                f"default: + orders /d$/ to {PATH}.audit in default",
                "default: + orders '#' to raw messages in warehouse",
                f"default: + orders 'order.#' to {PATH}.mail in mail",
            ]
        )
        assert not ExchangeRow.objects.exists()
        assert qbind() == said
        assert qbind() == ["default: nothing to do"]
        assert set(ExchangeRow.objects.values_list("name", "declared")) == {("orders", True), ("invoices", True)}
        assert set(Binding.objects.values_list("pattern", "queue", "priority", "declared")) == {
            ("order.#", "mail", 7, True),
            ("d$", "default", 0, True),
            ("#", "warehouse", 2, True),
        }

    def test_a_declaration_changed_in_the_code_is_updated(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        subscribe("orders", "#")(subscribers.audit)
        qbind()
        Binding.objects.filter(task=subscribers.audit.module_path).update(queue="where it was before")
        declare_binding("orders", "#", queue="warehouse", max_attempts=2)
        assert qbind() == [
            "default: ~ orders '#' to raw messages in warehouse",
            f"default: ~ orders '#' to {PATH}.audit in default",
        ]
        assert len(publish("orders", "a", 1)) == 2

    def test_a_binding_made_by_hand_becomes_declared_by_its_declaration(self) -> None:
        ORDERS.declare()
        ORDERS.bind("#", queue="warehouse")
        declare_binding("orders", "#", queue="warehouse")
        assert qbind() == ["default: + exchange orders", "default: ~ orders '#' to raw messages in warehouse"]
        assert qbind() == ["default: nothing to do"]

    def test_a_removed_declaration_is_reported_and_deleted_by_prune(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        declare_exchange("invoices")
        qbind()
        ORDERS.bind("by.hand", queue="warehouse")
        DECLARED.bindings.clear()
        DECLARED.exchanges.clear()
        assert qbind() == [
            "default: orders '#' to raw messages in warehouse is no longer declared (--prune deletes it)",
            "default: exchange invoices is no longer declared (--prune deletes it)",
        ]
        assert (
            qbind("--prune", "--dry-run")
            == qbind("--prune")
            == [
                "default: - orders '#' to raw messages in warehouse",
                "default: - exchange invoices",
            ]
        )
        # What somebody bound by hand stays, and so does its exchange.
        assert list(Binding.objects.values_list("exchange", "pattern")) == [("orders", "by.hand")]

    def test_the_exit_code_of_check_shows_pending_changes(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        with pytest.raises(CommandError, match=r"run manage\.py qbind"):
            qbind("--check")
        assert not Binding.objects.exists()
        qbind()
        assert qbind("--check") == ["default: nothing to do"]
        DECLARED.bindings.clear()
        qbind("--check")
        with pytest.raises(CommandError):
            qbind("--check", "--prune")

    def test_a_regular_expression_that_postgresql_refuses_is_an_error_and_changes_nothing(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        declare_binding("orders", "(", queue="warehouse", regex=True)
        with pytest.raises(CommandError, match=r"Nothing was changed. \+ orders /\(/ .*parentheses"):
            qbind()
        assert not ExchangeRow.objects.exists()

    def test_an_unknown_database_is_an_error(self) -> None:
        with pytest.raises(CommandError, match=r"no queue in the database 'jobs'.*default"):
            qbind("--database", "jobs")
        assert qbind("--database", "default") == ["default: nothing to do"]

    def test_a_database_without_the_queue_is_an_error(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("alter table pgqueue_exchange rename to elsewhere")
        with pytest.raises(CommandError, match=r"database 'default' lacks .*pgqueue_exchange.* Run manage.py migrate"):
            qbind()

    def test_migrating_binds_nothing(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        call_command("migrate", verbosity=0)
        assert not ExchangeRow.objects.exists()

    @pytest.mark.django_db(transaction=True)
    def test_two_deployments_at_once_end_with_the_same(self) -> None:
        for n in range(10):
            declare_binding("orders", f"n{n}.#", queue="warehouse")

        def deploy(prune: str) -> list[str]:
            try:
                return qbind(*([prune] if prune else []))
            finally:
                connections.close_all()

        said = concurrently([partial(deploy, prune) for prune in ("", "", "--prune")])
        assert max(len(each) for each in said) == 11
        assert Binding.objects.count() == 10


class TestCheck:
    def test_a_declaration_that_is_not_bound_is_a_warning(self) -> None:
        subscribe("orders", "order.#")(subscribers.audit)
        assert check_bindings(None) == []
        [found] = check_bindings(["default"])
        assert found.id == "pgqueue.W004"
        assert f"orders 'order.#' to {PATH}.audit" in found.msg
        assert "qbind" in (found.hint or "")
        qbind()
        assert check_bindings(["default"]) == []

    def test_a_binding_without_a_declaration_is_no_warning(self) -> None:
        declare_binding("orders", "#", queue="warehouse")
        qbind()
        DECLARED.bindings.clear()
        assert check_bindings(["default"]) == []

    def test_without_tables_there_is_no_warning(self) -> None:
        declare_exchange("orders")
        with connection.cursor() as cursor:
            cursor.execute("alter table pgqueue_binding rename to elsewhere")
        assert check_bindings(["default"]) == []

    def test_a_task_of_another_backend_is_not_ours_to_bind(self, settings: Any) -> None:
        settings.TASKS = {
            "default": {"BACKEND": "django_pgqueue.stand_ins.DummyBackend"},
            "ours": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
        }
        subscribe("orders", "#")(subscribers.audit)
        assert check_bindings(["default"]) == []
