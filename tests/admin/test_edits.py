"""Everything that a list of messages finds is changed by an edit, which has a page of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.db.models.expressions import RawSQL
from django.db.models.lookups import Exact
from django.test.utils import CaptureQueriesContext

from django_pgqueue import functions
from django_pgqueue.admin.message.admin import MessageAdmin
from django_pgqueue.admin.parts import filters
from django_pgqueue.admin.parts.paginator import CappedPaginator
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.control import Filter, edit, edit_state
from django_pgqueue.models import Edit, Message
from django_pgqueue.monitoring.overview import limits
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, fail, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

    LogIn = Callable[..., Visitor]

ASK = f"{MESSAGES}edit/"
EDITS = "/admin/django_pgqueue/edit/"
HOUR_MS = 3_600_000


class OfATenant(SimpleListFilter):
    """A project's own, with a parameter that means something else in an edit."""

    title = "tenant"
    parameter_name = "queue"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        return [("acme", "ACME")]

    def queryset(self, request: Any, queryset: Any) -> Any:  # noqa: ARG002
        return queryset.filter(channel=self.value()) if self.value() else queryset


def work() -> None:
    while functions.edit_step(connection) is not None:
        pass


def post(visitor: Visitor, query: str, **data: Any) -> Page:
    return Page(visitor.client.post(f"{ASK}?{query}", {"confirmed": "1", **data}, follow=True))


class TestAsking:
    def test_what_the_list_finds_is_cancelled_by_an_edit_with_a_name_and_a_result(self, root: Visitor) -> None:
        for queue in ("bulk", "bulk", "mail"):
            send(queue=queue)
        page = root.open(ASK, queue="bulk", status="ready")
        assert "2 messages match now, by queue bulk, status ready." in page.root.text
        page = post(root, "queue=bulk&status=ready", action="cancel")
        asked = Edit.objects.get()
        assert page.said == [f"Edit {asked.pk} begins as soon as a worker sees it, within some seconds."]
        assert (asked.action, asked.asked_by, asked.filter) == ("cancel", "root", {"queue": "bulk", "status": "ready"})
        work()
        page = root.open(f"{EDITS}{asked.pk}/change/")
        assert "finished" in page.root.text
        assert "2 done" in page.root.text
        assert Message.objects.get().queue == "mail"
        assert LogEntry.objects.get().change_message.startswith("Cancel, and ask those that run to stop: ")

    @pytest.mark.parametrize(
        ("query", "which"),
        [
            ("", {}),
            ("task=(raw)", {"raw": True}),
            ("task=shop.tasks.send&channel=acme", {"task": "shop.tasks.send", "channel": "acme"}),
            ("q=send", {"task_contains": "send"}),
            ("created_at__range__gte_0=1970-01-02", {"created_from": 86_400_000}),
            ("dequeue_at__range__lte_0=1970-01-02&dequeue_at__range__lte_1=00:00:00", {"run_at_until": 86_400_000}),
        ],
    )
    def test_the_filters_of_the_list_are_those_of_the_edit(
        self, root: Visitor, query: str, which: dict[str, Any]
    ) -> None:
        post(root, query, action="prioritise", priority="7")
        found = Edit.objects.get()
        assert (found.filter, found.parameters) == (which, {"priority": 7})

    def test_a_search_by_id_and_an_unknown_filter_are_no_edit(self, root: Visitor) -> None:
        assert "finds one message" in root.open(ASK, q="7").said[0]
        assert "has no filter" in root.open(ASK, content__args="7").said[0]
        assert not Edit.objects.exists()

    @pytest.mark.parametrize(
        ("more", "query"),
        [
            (OfATenant, "queue=acme"),
            (("locked_at", filters.MomentRangeFilter), "locked_at__range__gte_0=2026-01-02"),
            ("max_attempts", "max_attempts=3"),
        ],
    )
    def test_a_filter_that_a_project_has_added_to_the_list_is_no_edit(
        self, root: Visitor, monkeypatch: pytest.MonkeyPatch, more: Any, query: str
    ) -> None:
        monkeypatch.setattr(MessageAdmin, "list_filter", (filters.StatusFilter, more))
        page = post(root, query, action="cancel")
        assert page.said[0].startswith("An edit cannot be filtered by ")
        assert page.response.request["QUERY_STRING"] == query
        assert not Edit.objects.exists()

    def test_a_click_asks_as_little_of_the_database_for_a_flood_as_for_one_message(self, root: Visitor) -> None:
        asked = []
        for number in (1, 60):
            for _ in range(number):
                send(queue="bulk")
            with CaptureQueriesContext(connection) as captured:
                answer = root.client.post(f"{ASK}?queue=bulk", {"confirmed": "1", "action": "cancel"})
            assert answer.status_code == 302
            asked.append([query["sql"] for query in captured])
            work()
        assert len(asked[0]) == len(asked[1])
        counts_or_lists = ("pgqueue_edit_messages", "count(*)", f"limit {CappedPaginator.CAP + 1}")
        assert not [sql for sql in asked[1] if any(words in sql.lower() for words in counts_or_lists)]

    def test_an_action_without_its_parameter_is_asked_for_it(self, root: Visitor) -> None:
        send()
        for action in ("move", "prioritise", "postpone"):
            page = post(root, "", action=action)
            assert "This action needs it." in page.root.text
        assert not Edit.objects.exists()
        post(root, "", action="postpone", delay="1 hour")
        post(root, "", action="move", queue="slow")
        work()
        assert Message.objects.get().queue == "slow"

    def test_a_user_does_only_what_the_permissions_allow(self, visitor: LogIn) -> None:
        canceller = visitor("view_message", "cancel_message")
        assert [one.text for one in canceller.open(ASK).root.one("select", name="action").all("option")] == [
            "Cancel, and ask those that run to stop"
        ]
        post(canceller, "", action="delete")
        assert not Edit.objects.exists()
        post(canceller, "", action="cancel")
        assert Edit.objects.get().action == "cancel"
        reader = visitor("view_message")
        assert reader.client.get(ASK).status_code == 403
        assert "Everything that matches" not in reader.open(MESSAGES).root.text


@pytest.mark.django_db(transaction=True)
def test_a_list_that_took_too_long_still_leads_to_everything_that_matches_its_filters(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(term: str) -> Exact:
        return Exact(RawSQL("pg_sleep(600) is not null and task = %s", [term]), True)

    send(queue="bulk")
    monkeypatch.setattr(ReadOnlyAdmin, "matching", lambda _, term: slow(term))
    monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "1s")
    answers = [root.client.get(MESSAGES, {"queue": "bulk", "q": "send", **more}) for more in ({}, {"download": "csv"})]
    assert answers[1].url == f"{MESSAGES}?queue=bulk&q=send"  # type: ignore[attr-defined]
    page = Page(answers[0])
    assert page.ids == []
    assert "was cancelled. The list shows no rows. Its filters are still set" in page.notes[0]
    assert not page.root.all(id="pgqueue-live"), "nor does it ask again by itself"
    [link] = [one for one in page.root.all("a") if one.text == "Everything that matches…"]
    asked = root.open(link.attributes["href"]).root.text
    assert "queue bulk" in asked
    assert "task contains send" in asked


@pytest.mark.django_db(transaction=True)
def test_a_list_that_postgresql_refuses_keeps_its_filters(root: Visitor) -> None:
    send(queue="bulk")
    page = Page(root.client.get(MESSAGES, {"queue": "bulk", "task": "a\x00"}))
    assert page.ids == []
    assert page.notes[0].startswith("PostgreSQL cannot run this search: ")
    assert "The list shows no rows. Its filters are still set" in page.notes[0]
    assert page.chosen("queue") == ["bulk"]
    answer = root.client.get(MESSAGES, {"queue": "bulk", "task": "a\x00", "download": "csv"})
    assert answer.url == f"{MESSAGES}?queue=bulk&task=a%00"  # type: ignore[attr-defined]


class TestPage:
    def test_it_is_stopped_and_resumed_by_who_may_do_it(self, root: Visitor, visitor: LogIn) -> None:
        send()
        asked = edit("cancel", Filter())
        reader = visitor("view_edit", "run_message")
        assert reader.open(f"{EDITS}{asked}/change/").buttons == []
        assert reader.act(EDITS, "stop", [asked]).said[0].startswith(f"Not stopped: {asked}.")
        page = root.press(root.open(f"{EDITS}{asked}/change/"), "Stop")
        assert page.said == ["1 edit stopped."]
        work()
        assert Message.objects.exists()
        root.press(page, "Resume")
        work()
        assert (edit_state(asked).done, Message.objects.exists()) == (1, False)

    def test_it_tells_how_far_it_is_without_a_reload(self, root: Visitor, visitor: LogIn) -> None:
        for _ in range(4):
            send()
        asked = edit("cancel", Filter())
        functions.edit_step(connection, limit=2)
        told = root.client.get(f"{EDITS}{asked}/change/?live=page").json()
        assert 'value="50"' in told["page"]
        assert "2 done" in told["page"]
        assert "gone" in root.client.get(f"{EDITS}999/change/?live=page").json()
        assert visitor("view_message").client.get(f"{EDITS}{asked}/change/?live=page").status_code == 403

    def test_a_value_that_an_edit_looks_for_is_content(self, root: Visitor, visitor: LogIn) -> None:
        post(root, "argument=ada&queue=mail", action="cancel")
        pk = Edit.objects.get().pk
        for one, shown in ((root, "argument ada"), (visitor("view_edit"), "argument (hidden)")):
            for url in (EDITS, f"{EDITS}{pk}/change/", f"{EDITS}{pk}/change/?live=page"):
                assert shown in one.client.get(url).content.decode(), url
        assert "ada" not in visitor("view_edit", "run_message").open(f"{EDITS}{pk}/history/").root.text

    def test_the_list_names_what_matches_and_who_asked(self, root: Visitor) -> None:
        edit("postpone", Filter(queue="<b>"), run_at=functions.now(connection), by="<i>Ada")
        [row] = root.open(EDITS).rows
        assert (row["what matches"], row["asked by"], row["state"]) == ("queue <b>", "<i>Ada", "waits")


class TestHistory:
    """The same button in the history: one way to enqueue many messages again."""

    def test_what_the_list_finds_is_enqueued_again_once(self, root: Visitor) -> None:
        failed = []
        for queue in ("mail", "mail", "other"):
            failed.append(send(queue=queue))
            fail(claim(queue)[0], ValueError("no"))
        send(queue="mail")
        complete(claim("mail")[0])
        query = (
            "status__exact=failed&queue=mail&final__exact=1&error_class=ValueError&finished_at__range__gte_0=1970-01-02"
        )
        assert f"{ATTEMPTS}edit/?" in root.open(f"{ATTEMPTS}?{query}").response.content.decode()
        assert "2 messages match now" in root.open(f"{ATTEMPTS}edit/?{query}").root.text
        for _ in range(2):
            data = {"confirmed": "1", "action": "enqueue_again"}
            page = Page(root.client.post(f"{ATTEMPTS}edit/?{query}", data, follow=True))
            assert "begins as soon as a worker sees it" in page.said[0]
            work()
            made = sorted(one.headers["enqueued_again_from"] for one in Message.objects.all() if one.headers)
            assert made == failed[:2]
        assert {one.action for one in Edit.objects.all()} == {"enqueue_again"}

    def test_an_error_is_found_as_in_the_list(self, root: Visitor, visitor: LogIn) -> None:
        for error in (ValueError("disk full"), OSError("disk full"), OSError("no route")):
            send()
            fail(claim()[0], error)
        clerk = visitor("view_attempt", "run_message")
        for who, part, found in ((root, "DISK", 2), (root, "oserror", 2), (clerk, "oserror", 2), (clerk, "disk", 0)):
            query = f"?error_class={part}"
            assert len(who.open(ATTEMPTS + query).rows) == found, part
            assert who.open(f"{ATTEMPTS}edit/{query}").root.text.count(f"{found} messages match now, by error {part}")

    def test_filters_that_an_edit_cannot_have_are_refused(self, root: Visitor, visitor: LogIn) -> None:
        pk = send()
        fail(claim()[0], ValueError("no"))
        for query in ("duration__range__gte=1", "wait__range__gte=1", "final__exact=0", f"message_id={pk}", "id=1"):
            page = root.open(f"{ATTEMPTS}edit/?{query}")
            assert page.said[0].startswith("An edit cannot be filtered by "), query
        clerk = visitor("view_attempt", "run_message")
        for query in ("error_group=x", "argument=7"):
            assert "may not see content" in clerk.open(f"{ATTEMPTS}edit/?{query}").said[0], query
        assert "An edit cannot be filtered by" in root.open(f"{MESSAGES}edit/?id={pk}").said[0]
        assert not Edit.objects.exists()
