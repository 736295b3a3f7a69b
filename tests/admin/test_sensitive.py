"""Sensitive arguments are shown to nobody: not in the admin, not in errors, and not in logs."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.backend import enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidContent
from django_pgqueue.models import Attempt, Message, Schedule
from django_pgqueue.tasks import registry, task
from django_pgqueue.testing import drain
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, fail, noted, retry, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import Settings

    from tests.support.admin_page import Visitor

SECRET = "4711-0815"
BACKEND = "django_pgqueue.backend.PgQueueBackend"

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


@pytest.fixture
def bank() -> Iterator[ModuleType]:
    """A module of tasks, as a project has one."""
    module = ModuleType("bank")

    def declare(function: Callable[..., Any], **options: Any) -> None:
        function.__module__, function.__qualname__ = "bank", function.__name__
        setattr(module, function.__name__, task(function, **options))

    def pay(amount: int, card: str, *, note: Any = None) -> Any: ...

    def vote(*ballot: Any) -> Any:
        return {1, 2} if "set" in ballot else None

    def tell(context: Any, card: str, text: str) -> Any:
        context.progress(2, text)

    def fill(first: Any, *rest: Any) -> None: ...

    declare(pay, sensitive=["card"])
    declare(vote, sensitive=True, unique_key=lambda *ballot: f"{ballot[0]}")
    declare(tell, sensitive=["card"], takes_context=True)
    declare(fill, sensitive=["rest"])
    sys.modules["bank"] = module
    yield module
    del sys.modules["bank"]
    registry.forget()


def fields(root: Visitor, url: str) -> dict[str, str]:
    page = root.open(url)
    assert SECRET not in page.response.content.decode()
    return {name: value.text for name, value in page.fields.items()}


def url_of(pk: int) -> str:
    return f"{MESSAGES}{pk}/change/"


def ended(pk: int) -> str:
    return f"{ATTEMPTS}{Attempt.objects.get(message_id=pk, final=True).pk}/change/"


@pytest.mark.parametrize(
    "call",
    [{"args": [12, SECRET]}, {"args": [12], "kwargs": {"card": SECRET}}, {"kwargs": {"card": [SECRET], "amount": 1}}],
)
def test_an_argument_is_hidden_however_it_is_given(root: Visitor, bank: ModuleType, call: dict[str, Any]) -> None:
    pk = int(bank.pay.enqueue(*call.get("args", ()), **call.get("kwargs", {})).id)
    shown = fields(root, url_of(pk))
    assert "(hidden)" in shown["content"]
    assert ("12" in shown["content"]) == ("args" in call)


def test_keys_with_the_name_of_the_argument_are_hidden_at_any_depth(root: Visitor, bank: ModuleType) -> None:
    pk = send(
        f'{{"args": [1, 2], "kwargs": {{"note": [{{"card": "{SECRET}", "b": "kept"}}]}}}}',
        task="bank.pay",
        headers=f'{{"card": "{SECRET}", "trace": "abc"}}',
    )
    [held] = claim()
    functions.message_progress(connection, held, f'{{"text": {{"card": "{SECRET}"}}}}')
    retry(held, dequeue_at=0, state=f'{{"card": "{SECRET}", "page": 7}}')
    shown = fields(root, url_of(pk))
    assert "kept" in shown["content"]
    assert "abc" in shown["headers"]
    assert shown["state"] == '{ "card": "(hidden)", "page": 7 }'
    complete(claim()[0], f'{{"card": "{SECRET}", "paid": true}}')
    shown = fields(root, ended(pk))
    assert shown["result"] == '{ "card": "(hidden)", "paid": true }'


def test_a_task_that_takes_its_context_and_one_that_takes_any_number(root: Visitor, bank: ModuleType) -> None:
    pk = int(bank.tell.enqueue(SECRET, "hello").id)
    assert fields(root, url_of(pk))["content"] == '{ "args": [ "(hidden)", "hello" ], "kwargs": {} }'
    pk = int(bank.fill.enqueue("first", SECRET, SECRET).id)
    assert fields(root, url_of(pk))["content"] == '{ "args": [ "first", "(hidden)", "(hidden)" ], "kwargs": {} }'


def test_all_content_of_a_message_can_be_hidden(root: Visitor, bank: ModuleType) -> None:
    pk = int(bank.vote.enqueue(SECRET).id)
    shown = fields(root, url_of(pk))
    assert shown["content"] == "(hidden) It is not shown, because it is sensitive."
    assert (shown["state"], shown["unique key"]) == ("-", "(hidden)")
    complete(claim()[0], f'"{SECRET}"')
    shown = fields(root, ended(pk))
    assert shown["result"] == shown["content"] == "(hidden) It is not shown, because it is sensitive."
    assert shown["unique key"] == "(hidden)"


def test_content_of_a_task_that_is_not_in_the_code_is_hidden(root: Visitor) -> None:
    pk = send(f'{{"args": ["{SECRET}"], "kwargs": {{}}}}', task="bank.gone")
    assert fields(root, url_of(pk))["content"] == (
        "(hidden) This code has no task bank.gone, so its sensitive arguments are unknown: its content is not shown."
    )


@pytest.mark.parametrize("sensitive", [True, ["parcel"], "parcel"])
def test_a_setting_hides_content_of_all_messages(root: Visitor, settings: Settings, sensitive: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"SENSITIVE": sensitive}}}
    for name in ("shop.tasks.send_receipt", None):
        pk = send(f'{{"parcel": "{SECRET}"}}', task=name, headers=f'{{"parcel": "{SECRET}"}}')
        shown = fields(root, url_of(pk))
        assert shown["content"].startswith("(hidden)" if sensitive != ["parcel"] else '{ "parcel": "(hidden)" }')
        assert "(hidden)" in shown["headers"]


@pytest.mark.parametrize("content", ["1e100000", "[" * 3_000 + "]" * 3_000, "[" + "9" * 20_000 + "]", '"text"', "null"])
def test_content_that_cannot_be_searched_is_hidden(root: Visitor, bank: ModuleType, content: str) -> None:
    pk = send(content, task="bank.pay")
    assert root.open(url_of(pk)).response.status_code == 200


class TestErrors:
    def test_the_error_of_a_refused_call_does_not_quote_it(self, bank: ModuleType) -> None:
        for call in (
            lambda: bank.pay.enqueue(1, f"{SECRET}\x00"),
            lambda: enqueue_many(bank.pay, [(1, f"{SECRET}\x00")]),
        ):
            with pytest.raises(InvalidContent) as raised:
                call()
            assert SECRET not in str(raised.value)
            assert "a str that is not shown, because it is sensitive" in str(raised.value)

    def test_the_error_of_a_refused_key_does_not_quote_it(self, bank: ModuleType) -> None:
        with pytest.raises(InvalidTask) as raised:
            bank.vote.enqueue(SECRET * 1_000)
        assert SECRET not in str(raised.value)

    def test_errors_of_other_tasks_are_quoted_as_usual(self, bank: ModuleType) -> None:
        with pytest.raises(InvalidContent):
            bank.pay.enqueue(1, f"{SECRET}\x00")
        with pytest.raises(InvalidContent, match="4711"):
            sys.modules["shop.tasks"].send_receipt.enqueue(f"{SECRET}\x00")

    @pytest.mark.usefixtures("bank")
    def test_the_error_that_a_worker_records_does_not_quote_it(self) -> None:
        send(f'"{SECRET}"', task="bank.pay")
        drain()
        [attempt] = Attempt.objects.all()
        assert attempt.error_class == "django_pgqueue.exceptions.InvalidContent"
        assert SECRET not in f"{attempt.error_message} {attempt.traceback}"

    def test_no_log_contains_it(self, bank: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        logging.getLogger("django.db.backends").setLevel(logging.WARNING)
        bank.pay.enqueue(1, SECRET)
        bank.vote.enqueue(SECRET)
        drain()
        assert caplog.records
        assert SECRET not in caplog.text


class TestErrorTexts:
    """A task raises what it likes: the errors of one with sensitive arguments are for those who may see content."""

    WORDS = f"the card {SECRET} was refused"
    OTHER = "the printer is out of paper"
    PAGES = (
        MESSAGES,
        ATTEMPTS,
        f"{MESSAGES}?download=json",
        f"{ATTEMPTS}?download=csv",
        f"{ATTEMPTS}errors/",
        "/admin/django_pgqueue/overview/",
        "/admin/django_pgqueue/reporthour/",
    )

    @pytest.fixture
    def urls(self, bank: ModuleType) -> list[str]:
        """Every page about errors of a task with sensitive arguments, and of another one."""
        found = list(self.PAGES)
        errors = {bank.pay.module_path: LookupError(self.WORDS), "shop.tasks.send_receipt": ValueError(self.OTHER)}
        for path, error in errors.items():
            pk = send(task=path, queue=path)
            retry(claim(path)[0], raised(error), dequeue_at=2**50)
            ended = send(task=path, queue=f"{path}.ended")
            fail(claim(f"{path}.ended")[0], raised(error))
            rows = Attempt.objects.filter(message_id__in=[pk, ended])
            found += [url_of(pk), *(f"{ATTEMPTS}{row.pk}/change/" for row in rows)]
        return found

    def test_error_texts_need_the_permission_on_every_page(
        self, visitor: Callable[..., Visitor], urls: list[str]
    ) -> None:
        views = ("view_message", "view_attempt", "view_overview", "view_reporthour", "run_message")
        clerk, auditor = visitor(*views), visitor(*views, "see_content")
        for url in urls:
            assert SECRET not in clerk.open(url).response.content.decode(), url
        seen = "".join(clerk.open(url).response.content.decode() for url in urls)
        assert self.OTHER in seen, "of other tasks everybody who may see the history sees them"
        assert "builtins.LookupError" in seen, "their class stands there all the same"
        shown = [url for url in urls if SECRET in auditor.open(url).response.content.decode()]
        assert len(shown) == 8, shown

    @pytest.mark.usefixtures("urls")
    def test_error_texts_are_not_found_by_a_part_of_them(self, visitor: Callable[..., Visitor]) -> None:
        clerk, auditor = visitor("view_attempt", "run_message"), visitor("view_attempt", "see_content")
        for part in (SECRET, SECRET[:3], "refused"):
            assert clerk.open(ATTEMPTS, error_class=part).ids == []
            assert clerk.open(ATTEMPTS, q=part).ids == []
            assert len(auditor.open(ATTEMPTS, error_class=part).ids) == 2
        assert len(clerk.open(ATTEMPTS, error_class="lookuperror").ids) == 2
        again = clerk.open(f"{ATTEMPTS}edit/", error_class="refused").root.one(id="content-main").text
        assert again.startswith("0 messages match now")

    def test_error_texts_of_a_task_no_longer_in_the_code_are_hidden(self, visitor: Callable[..., Visitor]) -> None:
        send(task="bank.gone")
        fail(claim()[0], ValueError(self.WORDS))
        clerk = visitor("view_attempt")
        assert clerk.open(ATTEMPTS).column("error") == ["ValueError: (hidden)"]
        assert SECRET not in clerk.open(f"{ATTEMPTS}errors/").response.content.decode()

    @pytest.mark.usefixtures("bank")
    def test_an_error_of_postgresql_is_shown_without_the_row(self, visitor: Callable[..., Visitor]) -> None:
        """Its details quote all of it."""
        send(f'{{"args": ["{SECRET}"], "kwargs": {{}}}}', task="bank.pay")
        fail(claim()[0])
        Attempt.objects.update(priority=9999)
        pk = Attempt.objects.get().pk
        page = visitor("view_attempt", "run_message", "see_content").act(ATTEMPTS, "enqueue_again", [pk])
        assert page.said[0].startswith("Nothing was enqueued again: ")
        assert SECRET not in page.response.content.decode()

    def test_the_error_of_a_schedule_whose_key_fails_does_not_quote_it(
        self, visitor: Callable[..., Visitor], bank: ModuleType, caplog: pytest.LogCaptureFixture
    ) -> None:
        def key(card: str) -> str:
            raise ValueError(card)

        def charge(card: str) -> None: ...

        charge.__module__, charge.__qualname__ = "bank", "charge"
        bank.charge = task(charge, sensitive=["card"], unique_key=key)  # type: ignore[attr-defined]
        content = {"args": [SECRET], "kwargs": {}}
        Schedule.objects.create(name="daily", task="bank.charge", content=content, cron="* * * * *", next_at=0)
        page = visitor("view_schedule", "run_message").act("/admin/django_pgqueue/schedule/", "run_now", ["daily"])
        assert page.said == [
            "Schedule daily: The unique_key or the channel of bank.charge cannot be computed: ValueError."
        ]
        drain()
        assert SECRET not in page.response.content.decode() + caplog.text


def raised(error: Exception) -> Exception:
    """It, with a traceback."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize("sensitive", ["card", 1, [1], [""], None])
def test_an_invalid_sensitive_option_is_refused(sensitive: Any) -> None:
    with pytest.raises(InvalidTask, match="sensitive must be True, False or a list"):
        task(noted, sensitive=sensitive)


def test_a_sensitive_argument_is_stored_unchanged(bank: ModuleType) -> None:
    bank.pay.enqueue(1, SECRET)
    assert Message.objects.get().content == {"args": [1, SECRET], "kwargs": {}}
