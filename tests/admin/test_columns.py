"""Which columns of a list somebody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin import site

from django_pgqueue.admin import MessageAdmin
from django_pgqueue.admin.parts import chosen_columns
from django_pgqueue.models import Message
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, claim, complete, fail, send

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import RequestFactory

    from tests.support.admin_page import Page, Visitor


def boxes(page: Page) -> dict[str, bool]:
    found = [box for box in page.root.all("input") if box.attributes.get("name") == "columns"]
    return {box.attributes["value"]: "checked" in box.attributes for box in found if box.attributes["value"]}


@pytest.mark.parametrize("url", [MESSAGES, ATTEMPTS])
def test_chosen_columns_stay_after_the_login_and_can_be_given_back(root: Visitor, url: str) -> None:
    send()
    complete(claim()[0])
    send()
    usual = root.open(url).column
    assert not boxes(root.open(url))["worker"]
    answer = root.client.get(url, {"columns": ["channel", "created_at", "worker", "nonsense"], "queue": "default"})
    assert (answer.status_code, answer["Location"]) == (302, f"{url}?queue=default")
    assert answer.cookies[f"pgqueue_columns_{url.split('/')[-2]}"]["path"] == url
    [row] = root.open(url).rows
    assert {"worker", "channel"} <= {title.lower() for title in row}
    assert "status" not in {title.lower() for title in row}
    assert usual("id")
    root.client.get(url, {"columns": ""})
    assert boxes(root.open(url))["status"]


def test_a_file_has_the_columns_of_the_list(root: Visitor) -> None:
    send(channel="acme")
    root.client.get(MESSAGES, {"columns": ["channel", "priority"]})
    [row] = root.client.get(MESSAGES, {"download": "json"}).json()["rows"]
    assert list(row) == ["id", "priority", "channel"]
    [cells] = root.client.get(MESSAGES, {"live": row["id"]}).json()["rows"]
    assert "field-channel" in "".join(cells)
    assert "field-status" not in "".join(cells)


def test_a_projects_own_list_shows_its_own_columns(rf: RequestFactory, admin_user: User) -> None:
    class OwnAdmin(MessageAdmin):
        list_display = ("id", "task", "customer")

        def customer(self, message: Message) -> str:
            return message.channel or ""

    class Ours:
        list_display: Any = ("id", "task")

    class MixedAdmin(Ours, MessageAdmin):
        pass

    class OtherAdmin(MessageAdmin):
        pass

    request = rf.get("/")
    request.user = admin_user
    assert OwnAdmin(Message, site).get_list_display(request) == ("id", "task", "customer")
    assert MixedAdmin(Message, site).get_list_display(request) == ("id", "task")
    assert len(OtherAdmin(Message, site).get_list_display(request)) == len(MessageAdmin.default_columns)
    answers: list[Any] = [admin(Message, site).changelist_view(request) for admin in (OwnAdmin, OtherAdmin)]
    pages = [answer.render().content.decode() for answer in answers]
    assert [f'name="{chosen_columns.PARAMETER}"' in page for page in pages] == [False, True]


def test_a_cookie_that_names_no_column_is_as_none(root: Visitor) -> None:
    send()
    fail(claim()[0])
    root.client.cookies["pgqueue_columns_attempt"] = "nonsense.<script>"
    assert boxes(root.open(ATTEMPTS))["error"]


def test_the_form_keeps_the_filters_and_other_lists_have_none(root: Visitor) -> None:
    page = root.open(MESSAGES, status="ready")
    form = page.root.one("form", id="pgqueue-columns")
    assert {"name": "status", "value": "ready"}.items() <= form.all("input")[0].attributes.items()
    assert not boxes(root.open(WORKERS))
