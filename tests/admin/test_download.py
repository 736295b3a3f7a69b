"""What a list shows, as CSV and as JSON."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import control
from django_pgqueue.admin.parts.paginator import CappedPaginator
from tests.admin.test_edits import EDITS
from tests.admin.test_schedule import QUEUES, SCHEDULES, by_hand
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, TASK, WORKERS, claim, complete, send, sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

LISTS = [f"/admin/django_pgqueue/{name}/" for name in ("message", "attempt", "schedule", "worker", "channel", "event")]


def downloaded(visitor: Visitor, url: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = visitor.client.get(url, {**parameters, "download": "json"})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def test_a_file_has_the_rows_of_all_pages_of_the_filter(root: Visitor) -> None:
    ids = [send(dequeue_at=number) for number in range(60)]
    send(queue="mail")
    page = root.open(MESSAGES, queue="default")
    [link] = [link.attributes["href"] for link in page.root.all("a") if link.text == "CSV"]
    answer = root.client.get(MESSAGES + link)
    assert answer["Content-Disposition"] == 'attachment; filename="message.csv"'
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sorted(int(row["id"]) for row in rows) == ids
    assert {row["queue"] for row in rows} == {"default"}
    assert [int(row["id"]) for row in rows[:50]] == page.ids


def test_values_are_whole_and_for_programs(root: Visitor) -> None:
    send()
    [received] = claim()
    assert downloaded(root, MESSAGES)[0]["status"] == "running"
    complete(received)
    [row] = downloaded(root, ATTEMPTS)
    assert (row["message_id"], row["task"], row["error"], row["status"]) == (received.id, TASK, None, "succeeded")
    assert row["finished_at"].endswith("+00:00")
    assert isinstance(row["took_seconds"], float) or row["took_seconds"] is None


def test_times_of_all_lists_are_in_utc(root: Visitor) -> None:
    by_hand()
    control.pause("mail")
    control.edit("cancel", control.Filter(queue="mail"))
    sign_in()
    times = {SCHEDULES: ["next_at"], QUEUES: ["paused_at"], EDITS: ["asked_at"], WORKERS: ["seen_at", "started_at"]}
    for url, names in times.items():
        row = downloaded(root, url)[0]
        assert all(row[name].endswith("+00:00") for name in names), row


def test_a_paused_schedule_has_no_next_time(root: Visitor) -> None:
    by_hand(paused_at=dt.datetime.now(dt.UTC))
    assert downloaded(root, SCHEDULES)[0]["next_at"] is None


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_spreadsheet_finds_no_formula(root: Visitor, text: str) -> None:
    send(queue=text)
    answer = root.client.get(MESSAGES, {"download": "csv"})
    [row] = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["queue"] == f"'{text}"
    assert downloaded(root, MESSAGES)[0]["queue"] == text


def test_a_file_needs_the_permission_to_see_the_list(visitor: Callable[..., Visitor]) -> None:
    somebody = visitor("view_attempt")
    assert somebody.client.get(ATTEMPTS, {"download": "json"}).status_code == 200
    assert somebody.client.get(MESSAGES, {"download": "json"}).status_code == 403


def test_a_file_says_when_the_filters_find_more(root: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CappedPaginator, "CAP", 3)
    for _ in range(4):
        send()
    answer = root.client.get(MESSAGES, {"download": "json"})
    assert answer["Content-Disposition"] == 'attachment; filename="message-first-3.json"'
    assert (answer.json()["complete"], len(answer.json()["rows"])) == (False, 3)


def test_a_file_of_a_filter_that_the_list_refuses_leads_back_to_it(root: Visitor) -> None:
    answer = root.client.get(MESSAGES, {"content__args__0": "x", "download": "json"})
    assert (answer.status_code, answer["Location"]) == (302, f"{MESSAGES}?e=1")
    assert root.client.get(MESSAGES, {"download": "exe"}).status_code == 302


@pytest.mark.parametrize("url", LISTS)
def test_every_list_has_both_files(root: Visitor, url: str) -> None:
    assert url in {MESSAGES, ATTEMPTS, WORKERS} or downloaded(root, url) == []
    assert root.client.get(url, {"download": "csv"}).content.count(b"\n") == 1
