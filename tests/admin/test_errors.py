"""Errors of the same class and place are one line, with how many there were when."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.dashboards import errors
from django_pgqueue.admin.parts.content import ErrorTexts
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.models import Message
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, NOON, claim, fail, lose, retry, send, sign_in, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Element, Visitor

ERRORS = f"{ATTEMPTS}errors/"

pytestmark = pytest.mark.usefixtures("noon")


def raised(what: type[Exception], words: str, *, elsewhere: bool = False) -> Exception:
    """An error with a traceback."""

    def there() -> None:
        raise what(words)

    try:
        if elsewhere:
            there()
        raise what(words)  # noqa: TRY301 -- this is the place
    except what as error:
        return error


def failed(error: Any, **more: Any) -> None:
    send(**more)
    fail(claim(more.get("queue", "default"), tasks=more.get("task", "") is not None)[0], error)


def lines(page: Page) -> list[dict[str, str]]:
    return [
        {"Error": row.one("th").text, **{cell.attributes["data-label"]: cell.text for cell in row.all("td")}}
        for row in page.root.one("tbody").all("tr")
        if row.all("th")
    ]


def test_the_page_without_errors_has_a_note(root: Visitor) -> None:
    assert "No errors in the last 24 hours." in root.open(ERRORS).root.text


def test_errors_are_grouped_by_class_and_place(root: Visitor, clock: Clock) -> None:
    for number in range(3):
        failed(raised(ValueError, f"voucher {number} has expired <b>"))
        clock.advance(dt.timedelta(minutes=1))
    failed(raised(ValueError, "somewhere else", elsewhere=True))
    send()
    retry(claim()[0], raised(KeyError, "colour"))
    found = lines(root.open(ERRORS))
    assert [line["Attempts"] for line in found] == ["3", "1", "1"]
    assert [line["Failed for good"] for line in found] == ["3", "0", "1"]
    first = found[0]["Error"]
    assert first.startswith("ValueError admin/test_errors.py, line ")
    assert ", in raised voucher 2 has expired <b> shop.tasks.send_receipt" in first
    assert ", in there somewhere else" in found[2]["Error"]
    assert (found[0]["First"], found[0]["Last"]) == ("2026-01-09 12:00:00", "2026-01-09 12:02:00")


def test_unknown_tasks_have_a_line_each_with_the_task_as_its_place(root: Visitor) -> None:
    for task in ("shop.tasks.gone", "shop.tasks.renamed", "shop.tasks.gone"):
        failed(raised(UnknownTask, f"{task!r} is not a task: shop.tasks has no such name."), task=task)
    page = root.open(ERRORS)
    assert [(line["Attempts"], line["Error"].split()[:2]) for line in lines(page)] == [
        ("2", ["UnknownTask", "shop.tasks.gone"]),
        ("1", ["UnknownTask", "shop.tasks.renamed"]),
    ]
    titles = [title.attributes["id"] for title in page.root.all("title") if "id" in title.attributes]
    assert len(set(titles)) == len(titles) == 2


def test_a_line_links_to_the_newest_attempt_and_to_all_of_its_class(root: Visitor) -> None:
    failed(raised(ValueError, "no"))
    failed(raised(KeyError, "no"))
    page = root.open(ERRORS)
    newest, every = page.root.one("tbody").all("tr")[0].all("a")
    assert root.open(newest.attributes["href"]).fields["error"].text.startswith("builtins.KeyError")
    assert root.open(every.attributes["href"]).column("error") == ["KeyError: 'no'"]


def test_errors_without_a_class_and_lost_attempts_have_lines(root: Visitor, visitor: Callable[..., Visitor]) -> None:
    failed("out of paper", queue="printer", task=None)
    send()
    lose()
    claim()
    lost, plain = (line["Error"] for line in lines(root.open(ERRORS)))
    assert lost.startswith("AttemptLost shop.tasks.send_receipt the lock of worker worker-1 ran out")
    assert plain == "an error without a class raw messages out of paper"
    for line in visitor("view_attempt").open(ERRORS).root.one("tbody").all("tr"):
        links = [one.attributes["href"] for one in line.all("a")]
        assert len(links) == (1 if "without a class" in line.text else 2), "no list finds what has no class"


def test_the_time_is_chosen(root: Visitor, clock: Clock) -> None:
    failed("old")
    clock.advance(dt.timedelta(hours=3))
    failed("old")
    for period, count in {"1h": "1", "24h": "2", "7d": "2", "30d": "2", "nonsense": "2"}.items():
        [line] = lines(root.open(ERRORS, period=period))
        assert line["Attempts"] == count, period
    selected = [link.text for link in root.open(ERRORS, period="1h").root.all("a", **{"aria-current": "page"})]
    assert "the last hour" in selected


def test_errors_can_be_filtered_by_queue(root: Visitor) -> None:
    failed("a", queue="a")
    failed("b", queue="b")
    page = root.open(ERRORS, queue="a")
    assert len(lines(page)) == 1
    assert "Errors of the queue a." in page.root.text


def test_counts_over_time_are_drawn(clock: Clock, root: Visitor) -> None:
    clock.move_to(NOON - dt.timedelta(hours=12))
    failed("first")
    clock.move_to(NOON)
    failed("first")
    failed("first")
    [group], capped = errors.found(NOON, dt.timedelta(hours=24), texts=ErrorTexts(sees=True))
    assert group.over_time == [0] * 12 + [1] + [0] * 10 + [2]
    assert not capped
    assert root.open(ERRORS).root.one("svg", class_="pgqueue-spark").one("desc").text == "At most 2 in 1 h."


def test_only_the_newest_errors_are_searched_and_a_note_shows_it(
    root: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "MOST", 2)
    monkeypatch.setattr(errors, "GROUPS", 1)
    failed("one")
    failed(raised(KeyError, "two"))
    failed(raised(ValueError, "three"))
    page = root.open(ERRORS)
    assert [line["Error"].split()[0] for line in lines(page)] == ["ValueError"]
    assert page.notes == [
        "These are the newest 2 errors. There are older ones in the last 24 hours.", "And 1 other kind of error.",
    ]  # fmt: skip


def test_a_group_is_enqueued_again_by_one_button_once(root: Visitor) -> None:
    for number in range(2):
        failed(raised(ValueError, f"voucher {number}"))
    failed(raised(KeyError, "colour"))
    page = root.open(ERRORS)
    [form] = [form for form in page.root.all("form") if "ValueError" in str(label(form))]
    group = form.one("input", name="group").attributes["value"]
    for _ in range(2):
        said = Page(root.client.post(ERRORS, {"group": group}, follow=True)).said
        assert "begins as soon as a worker sees it" in said[0]
    while functions.edit_step(connection) is not None:
        pass
    assert Message.objects.count() == 2
    root.client.post(ERRORS, {"group": group})
    while functions.edit_step(connection) is not None:
        pass
    assert Message.objects.count() == 2, "the same ones are not enqueued again by another press"


def label(form: Element) -> str | None:
    return next((button.attributes.get("aria-label") for button in form.all("button")), None)


def test_the_list_of_a_group_has_its_attempts_and_no_others(root: Visitor, visitor: Callable[..., Visitor]) -> None:
    failed(raised(ValueError, "no"))
    failed(raised(ValueError, "other", elsewhere=True))
    row = root.open(ERRORS).root.one("tbody").all("tr")[0]
    every = row.all("a")[1].attributes["href"]
    assert "error_group=" in every
    assert len(root.open(every).ids) == 1
    reader = visitor("view_attempt")
    assert reader.open(every).ids == []
    assert "error_group=" not in str(reader.open(ERRORS).root.one("tbody").all("tr")[0].all("a")[1].attributes["href"])


@pytest.mark.parametrize("lacks", ["run_message", "see_content"])
def test_a_group_is_enqueued_again_by_who_may_run_messages_and_see_why_they_failed(
    visitor: Callable[..., Visitor], lacks: str
) -> None:
    failed(raised(ValueError, "no"))
    clerk = visitor("view_attempt", *({"run_message", "see_content"} - {lacks}))
    assert "Enqueue again" not in clerk.open(ERRORS).root.text
    assert clerk.client.post(ERRORS, {"group": "0123456789ab"}).status_code == 403


def test_groups_that_came_with_the_newest_version_are_marked(root: Visitor, clock: Clock) -> None:
    failed(raised(ValueError, "old"))
    clock.advance(dt.timedelta(minutes=5))
    sign_in("worker-1")
    functions.worker_version(connection, "worker-1", "2.4")
    sql("update pgqueue_worker set started_at = pgqueue_clock()")
    clock.advance(dt.timedelta(minutes=5))
    failed(raised(ValueError, "old"))
    failed(raised(KeyError, "new"))
    found = {line["Error"].split()[0]: line["First"] for line in lines(root.open(ERRORS))}
    assert found["KeyError"].endswith("new since 2.4")
    assert "new since" not in found["ValueError"]


def test_an_unknown_group_is_refused(root: Visitor) -> None:
    assert root.client.put(ERRORS).status_code == 405
    assert "must be a text" in Page(root.client.post(ERRORS, follow=True)).said[0]


def test_the_history_leads_to_the_page(root: Visitor) -> None:
    assert ERRORS in [link.attributes.get("href") for link in root.open(ATTEMPTS).root.all("a")]
