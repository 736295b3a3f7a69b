"""The rows of an open list and the fields of an open page, as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.auth import get_user_model

from django_pgqueue import control
from django_pgqueue.admin.message.admin import MessageAdmin
from django_pgqueue.monitoring.overview import limits
from tests.admin.test_edits import EDITS
from tests.admin.test_insights import INSIGHTS
from tests.admin.test_overview import OVERVIEW
from tests.support.address import conninfo
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, claim, complete, send, sign_in, sql

if TYPE_CHECKING:
    from django.test import Client

    from tests.support.admin_page import Visitor


def refreshed(visitor: Visitor, url: str, shown: list[Any], **parameters: Any) -> dict[str, Any]:
    answer = visitor.client.get(url, {**parameters, "live": shown or [""]})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_rows_are_as_they_are_now_in_the_order_of_the_page(root: Visitor) -> None:
    first, second = send(), send(queue="mail")
    claim()
    told = refreshed(root, MESSAGES, [second, first])
    assert [f">{pk}<" in "".join(row) for pk, row in zip((second, first), told["rows"], strict=True)] == [True, True]
    assert ["running" in "".join(row) for row in told["rows"]] == [False, True]
    assert told["fresh"] == 0


def test_a_row_that_the_filters_lost_is_still_told_and_one_that_ended_is_null(root: Visitor) -> None:
    first, second = send(), send()
    received = claim(limit=2)
    complete(received[0])
    told = refreshed(root, MESSAGES, [second, first], status="ready")
    assert "running" in "".join(told["rows"][0])
    assert told["rows"][1] is None


def test_new_rows_are_counted_and_those_of_the_next_page_are_not(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageAdmin, "list_per_page", 3)
    ids = [send() for _ in range(6)]
    shown = ids[:2:-1]
    assert refreshed(root, MESSAGES, shown)["fresh"] == 0
    complete(claim()[0])  # the first: of the second page
    send()
    assert refreshed(root, MESSAGES, shown)["fresh"] == 1
    assert refreshed(root, MESSAGES, shown, p=2)["fresh"] == 0
    send(queue="gone", dequeue_at=0)
    complete(claim("gone")[0])
    assert refreshed(root, MESSAGES, [])["fresh"] == 3


def test_the_answer_shows_what_the_list_shows(root: Visitor) -> None:
    sign_in()
    send()
    complete(claim()[0])
    for url in (ATTEMPTS, WORKERS):
        page = root.open(url)
        [asks] = page.root.all("div", id="pgqueue-live")
        [cells] = root.client.get(url + asks.attributes["data-url"]).json()["rows"]
        assert cells
        assert [cell for cell in cells if cell not in page.response.content.decode()] == []


def test_what_is_no_key_and_what_is_no_filter_is_refused_gently(root: Visitor) -> None:
    pk = send()
    assert refreshed(root, MESSAGES, ["x", pk])["rows"][0] is None
    answer = root.client.get(MESSAGES, {"content__args__0": "x", "live": str(pk)})
    assert answer.status_code == 400
    assert "problem" in answer.json()


@pytest.mark.parametrize("url", [MESSAGES, ATTEMPTS, WORKERS, EDITS])
def test_each_list_asks_for_its_rows_and_insights_does_not(root: Visitor, url: str) -> None:
    assert root.open(url).root.all("div", id="pgqueue-live")
    assert not root.open(INSIGHTS).root.all("div", id="pgqueue-live")


def asked(visitor: Visitor, url: str) -> str:
    """The address that an open page asks."""
    [asks] = visitor.open(url).root.all("div", id="pgqueue-live")
    return url + asks.attributes["data-url"]


def test_an_open_page_asks_for_itself_with_what_its_address_says(root: Visitor) -> None:
    sign_in("worker-1")
    pk = send()
    for url in (f"{MESSAGES}{pk}/change/", f"{WORKERS}worker-1/change/"):
        address = asked(root, f"{url}?_changelist_filters=queue%3Dmail")
        assert "_changelist_filters=queue%3Dmail" in address
        told = root.client.get(address).json()
        assert 'class="readonly"' in told["page"]
        assert told["took_ms"] >= 0


def test_an_open_page_is_told_where_its_message_is_when_it_has_ended(root: Visitor) -> None:
    pk = send()
    address = asked(root, f"{MESSAGES}{pk}/change/")
    complete(claim()[0])
    assert root.client.get(address).json()["gone"] == f"{ATTEMPTS}?message_id={pk}"


@pytest.mark.django_db(transaction=True)
def test_a_look_that_takes_too_long_says_so_and_calls_no_row_gone(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = send()
    edit = control.edit("cancel", control.Filter(), by="Ada")
    pages = [MESSAGES, f"{MESSAGES}{pk}/change/", f"{EDITS}{edit}/change/"]
    addresses = [asked(root, url) for url in pages]
    monkeypatch.setitem(limits.BOUNDS, "statement_timeout", "50ms")
    with psycopg.connect(conninfo()) as other:
        other.execute("lock table pgqueue_message, pgqueue_edit in access exclusive mode")
        for address in addresses:
            answer = root.client.get(address)
            assert answer.status_code == 503, address
            assert answer.json() == {"problem": "The query took longer than 5 seconds and was cancelled."}


@pytest.mark.django_db(transaction=True)
def test_a_session_that_transaction_timeout_ended_is_no_error_page(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sql("select current_setting('transaction_timeout', true)") == [(None,)]:
        pytest.skip("PostgreSQL 17 is the first one with transaction_timeout")
    pk = send()
    page = f"{MESSAGES}{pk}/change/"
    looks = [asked(root, MESSAGES), asked(root, page), f"{OVERVIEW}live/"]
    monkeypatch.setitem(limits.BOUNDS, "transaction_timeout", "100ms")
    words = "The page took longer than PostgreSQL allows: terminating connection due to transaction timeout."
    with psycopg.connect(conninfo()) as other:
        other.execute("lock table pgqueue_message in access exclusive mode")
        for address in looks:
            answer = root.client.get(address)
            assert (answer.status_code, answer.json()) == (503, {"problem": words})
        assert root.open(OVERVIEW).notes == [words]
        stopped = root.client.get(page)
    assert stopped["Location"] == MESSAGES
    assert root.open(MESSAGES).said == [f"{words} Nothing was changed."]


def test_an_open_page_tells_nothing_to_those_who_may_not_see_it(root: Visitor, client: Client) -> None:
    address = asked(root, f"{MESSAGES}{send()}/change/")
    assert "/login/" in client.get(address)["Location"]
    user = get_user_model().objects.create_user("staff", is_staff=True)
    client.force_login(user)
    assert client.get(address).status_code == 403


@pytest.mark.parametrize("query", ["created_at__range__gte_0=x", "nonsense=1"])
def test_an_open_list_does_not_repeat_what_it_has_said(root: Visitor, query: str) -> None:
    assert root.open(f"{MESSAGES}?{query}").said
    for _ in range(2):
        root.client.get(f"{MESSAGES}?{query}&live=")
    assert not root.open(MESSAGES).said
