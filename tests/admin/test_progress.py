"""How far a running task is, as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.tasks.sensitive import HIDDEN
from tests.support.fixtures.admin import MESSAGES, claim, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

REPORT = '{"fraction": 0.425, "text": "page 17 of 40 <b>"}'


def running(report: str, **more: str) -> int:
    pk = send(**more)  # type: ignore[arg-type]
    [held] = claim()
    functions.message_progress(connection, held, report)
    return pk


def test_the_page_and_the_list_show_a_bar_with_its_text(root: Visitor) -> None:
    pk = running(REPORT)
    words = "42\N{NO-BREAK SPACE}% 42\N{NO-BREAK SPACE}% page 17 of 40 <b>".replace("\N{NO-BREAK SPACE}", " ")
    shown = root.open(f"{MESSAGES}{pk}/change/").fields["progress"]
    [row] = root.open(MESSAGES).cells
    for place in (shown, row["status"]):
        bar = place.one("progress")
        assert bar.attributes == {"max": "100", "value": "42", "aria-label": "Progress"}
        assert place.text.endswith(words)
    assert "{" not in shown.text


@pytest.mark.parametrize(
    ("fraction", "percent"), [("0", "0"), ("1", "100"), ("0.999", "99"), ("0.29", "29"), ("1e-9", "0")]
)
def test_a_hundred_per_cent_is_the_end_and_not_before(root: Visitor, fraction: str, percent: str) -> None:
    pk = running(f'{{"fraction": {fraction}, "text": ""}}')
    bar = root.open(f"{MESSAGES}{pk}/change/").fields["progress"].one("progress")
    assert bar.attributes["value"] == percent


@pytest.mark.parametrize(
    "report",
    [
        '{"fraction": 2, "text": ""}',
        '{"fraction": -0.5, "text": ""}',
        '{"fraction": true, "text": ""}',
        '{"fraction": "0.5", "text": ""}',
        '{"fraction": 0.5}',
        '{"fraction": 0.5, "text": null}',
        '{"fraction": 0.5, "text": "", "more": 1}',
        f'{{"fraction": {"9" * 6_000}, "text": ""}}',
        '[0.5, "half"]',
        "0.5",
        "null",
    ],
)
def test_json_of_another_form_is_shown_as_it_is(root: Visitor, report: str) -> None:
    pk = running(report)
    shown = root.open(f"{MESSAGES}{pk}/change/").fields["progress"]
    assert shown.all("progress") == []
    assert len(shown.all("pre")) == 1
    [row] = root.open(MESSAGES).rows
    assert row["status"] == "running"


def test_a_long_report_is_not_read_for_the_list(root: Visitor) -> None:
    running(f'{{"fraction": 0.5, "text": "{"".join(chr(0x4E00 + n) for n in range(9_000))}"}}')
    [row] = root.open(MESSAGES).rows
    assert row["status"] == "running"


def test_the_bar_needs_the_permission_to_see_content(visitor: Callable[..., Visitor]) -> None:
    pk = running(REPORT)
    clerk = visitor("view_message")
    assert clerk.open(f"{MESSAGES}{pk}/change/").fields["progress"].text == "You have no permission to see this."
    [row] = clerk.open(MESSAGES).rows
    assert row["status"] == "running"
    assert "page 17" in visitor("view_message", "see_content").open(MESSAGES).root.text


def test_the_report_of_a_task_that_is_not_in_the_code_is_hidden(root: Visitor) -> None:
    pk = running(REPORT, task="shop.tasks.unheard_of")
    shown = root.open(f"{MESSAGES}{pk}/change/").fields["progress"]
    assert shown.text.startswith(HIDDEN)
    [row] = root.open(MESSAGES).rows
    assert row["status"] == "running"
