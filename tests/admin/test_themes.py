"""A theme of the admin has pages of its own, with fewer blocks than Django's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Exchange, Message
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, fail, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.admin_page import Visitor

FORM = """{% block content %}
<form method="post" id="{{ opts.model_name }}_form">{% csrf_token %}{% block form_top %}{% endblock %}</form>
{% endblock %}"""
SITE = """<title>{{ title }}</title>{% block content %}{% endblock %}"""
LIST = """{% block content %}
<form>{% block result_list %}{% endblock %}</form>
{% endblock %}"""


@pytest.fixture
def theme(tmp_path: Path, settings: Any) -> None:
    """The blocks that the pages of django-unfold, django-grappelli, django-jazzmin and Django have in common."""
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "base_site.html").write_text(SITE)
    (tmp_path / "admin" / "change_form.html").write_text(FORM)
    (tmp_path / "admin" / "change_list.html").write_text(LIST)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]


@pytest.mark.usefixtures("theme")
def test_every_theme_shows_buttons_columns_downloads_and_the_test_of_a_routing_key(root: Visitor) -> None:
    pk = send()
    page = root.open(f"{MESSAGES}{pk}/change/")
    assert page.buttons == ["Postpone…", "Cancel…"]
    [form] = page.root.all("form", id="message_form")
    assert form.all("form") == []
    root.confirm(root.press(page, "Cancel…"))
    assert not Message.objects.filter(pk=pk).exists()

    send()
    fail(claim()[0], ValueError("no"))
    for address in (MESSAGES, ATTEMPTS):
        page = root.open(address)
        assert len(page.root.all(id="pgqueue-live")) == 1
        boxes = [box.attributes["form"] for box in page.root.all("input", name="columns", type="checkbox")]
        assert len(boxes) > 5
        assert len(page.root.all("form", id=boxes[0])) == 1
        text = page.root.text
        assert "Times are in the time zone UTC." in text
        assert ("Download: CSV · JSON" in text) == (address == ATTEMPTS), text

    Exchange.objects.create(name="orders")
    page = root.open("/admin/django_pgqueue/exchange/orders/change/", routing_key="a.b")
    asked = [field.attributes for field in page.root.all("input") if field.attributes.get("form") == "pgqueue-route"]
    assert [field.get("value") for field in asked] == ["a.b", "Show"]
    assert "No binding matches" in page.root.text


@pytest.mark.parametrize("themed", [True, False])
def test_a_page_of_the_queue_shows_its_title_once(
    root: Visitor, request: pytest.FixtureRequest, *, themed: bool
) -> None:
    if themed:
        request.getfixturevalue("theme")
    page = root.press(root.open(f"{MESSAGES}{send()}/change/"), "Cancel…")
    assert page.root.one("h1").text == "Cancel 1 message?"
    titles = {
        f"{MESSAGES}edit/": "Everything that matches",
        f"{MESSAGES}approvals/": "Approvals",
        f"{ATTEMPTS}errors/": "Errors",
        "/admin/django_pgqueue/overview/": "Overview",
    }
    assert {address: root.open(address).root.one("h1").text for address in titles} == titles
