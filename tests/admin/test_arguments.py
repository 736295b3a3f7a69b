"""The lists find messages by a value of their arguments, for users who may see content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Edit
from tests.admin.test_edits import post
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, send, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.usefixtures("noon")


def test_a_value_is_found_wherever_it_stands(root: Visitor) -> None:
    number = send('{"args": [7], "kwargs": {}}')
    text = send('{"args": [], "kwargs": {"order": {"pk": "7", "who": "ada"}}}')
    send('{"args": [77], "kwargs": {"who": "adam"}}')
    assert set(root.open(MESSAGES, argument="7").ids) == {number, text}
    assert root.open(MESSAGES, argument='"7"').ids == [text]
    assert root.open(MESSAGES, argument="ada").ids == [text]
    assert root.open(MESSAGES, argument="o'clock \\").ids == []
    complete(claim()[0])
    assert len(root.open(ATTEMPTS, argument="7").ids) == 1


def test_content_that_is_too_deep_for_the_server_is_no_error_page(root: Visitor) -> None:
    send("[" * 3_000 + "]" * 3_000)
    sql("set local max_stack_depth = '100kB'")
    [note] = root.open(MESSAGES, argument="7").notes
    assert note.startswith("PostgreSQL lacks the resources for this query: stack depth limit exceeded: ")


def test_nobody_finds_content_that_he_may_not_see(visitor: Callable[..., Visitor]) -> None:
    send('{"args": ["4711"], "kwargs": {}}')
    reader = visitor("view_message", "cancel_message")
    assert reader.open(MESSAGES, argument="4711").ids == []
    assert "A value anywhere" not in reader.open(MESSAGES).root.text
    assert reader.open(f"{MESSAGES}edit/", argument="4711").said == [
        "You may not see content, and so you cannot filter by it."
    ]


def test_an_edit_has_the_value_too(root: Visitor) -> None:
    post(root, "argument=7", action="cancel")
    assert Edit.objects.get().filter == {"argument": 7}
