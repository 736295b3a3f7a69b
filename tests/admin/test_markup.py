"""The pages under a content security policy, with a screen reader, and with a small INSTALLED_APPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.test import modify_settings, override_settings

from django_pgqueue.admin.parts import display
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, TASK, WORKERS, claim, fail, retry, send, sign_in

if TYPE_CHECKING:
    from tests.support.admin_page import Page, Visitor

# Somebody else's pages, which Django makes for us: what is in them is not ours to change.
DJANGOS_SCRIPTS = {"/static/admin/", "/admin/jsi18n/"}
OVERVIEW = "/admin/django_pgqueue/overview/"
OUR_SCRIPTS = {"/static/pgqueue/live.js", "/static/pgqueue/once.js"}


@pytest.fixture
def pages(root: Visitor) -> list[Page]:
    sign_in(queues=["mail"])
    pk = send(queue="slow", channel="acme")
    retry(claim("slow")[0], ValueError("no"), dequeue_at=0)
    send(queue="mail")
    fail(claim("mail")[0])
    [failed, retried] = root.open(ATTEMPTS).ids
    return [
        root.open(MESSAGES, status="ready", dequeue_at__range__gte_0="2020-01-01", task=TASK),
        root.open(MESSAGES, dequeue_at__range__gte_0="nonsense"),
        root.open(f"{MESSAGES}{pk}/change/"),
        root.act(MESSAGES, "cancel", [pk]),
        root.act(MESSAGES, "postpone", [pk]),
        root.open(ATTEMPTS, duration__range__gte="0", error_class="no"),
        root.open(f"{ATTEMPTS}{failed}/change/"),
        root.open(f"{ATTEMPTS}{retried}/change/"),
        root.open(WORKERS),
    ]


def test_a_page_has_no_script_style_or_handler_inside_and_its_files_come_from_the_site(pages: list[Page]) -> None:
    assert finders.find("pgqueue/admin.css")
    for page in pages:
        for element in page.root.all("link"):
            assert element.attributes["href"].startswith("/static/")
        assert page.root.all("link", href="/static/pgqueue/admin.css")
        for element in page.root.all():
            handlers = {name for name in element.attributes if name.startswith("on") or name == "style"}
            assert not handlers, element.attributes
            assert element.tag != "style", element.raw_text
            if element.tag == "script" and element.attributes.get("type") != "application/json":
                source = element.attributes["src"]
                assert source in OUR_SCRIPTS or any(source.startswith(own) for own in DJANGOS_SCRIPTS), source


def test_no_page_sends_a_form_twice(root: Visitor, pages: list[Page]) -> None:
    asks = [f"{MESSAGES}approvals/", f"{MESSAGES}edit/", f"{ATTEMPTS}edit/", f"{ATTEMPTS}errors/", OVERVIEW]
    for page in [*pages, *map(root.open, asks)]:
        scripts = {script.attributes.get("src") for script in page.root.all("script")}
        assert "/static/pgqueue/once.js" in scripts, page.root.one("title").text


def test_every_field_has_an_accessible_name_and_ids_are_unique(pages: list[Page]) -> None:
    for page in pages:
        ids = [element.attributes["id"] for element in page.root.all() if "id" in element.attributes]
        assert len(ids) == len(set(ids)), sorted(ids)
        labels = {label.attributes.get("for") for label in page.root.all("label")}
        wrapped = [field for label in page.root.all("label") for field in label.all()]
        for field in [*page.root.all("input"), *page.root.all("select")]:
            named = field in wrapped or field.attributes.get("id") in labels or "aria-label" in field.attributes
            assert named or field.attributes.get("type") in {"hidden", "submit"}, field.attributes


@pytest.mark.django_db
def test_the_range_filter_need_not_be_an_installed_app(root: Visitor) -> None:
    send()
    assert "rangefilter" in settings.INSTALLED_APPS
    with modify_settings(INSTALLED_APPS={"remove": "rangefilter"}):
        assert len(root.open(MESSAGES, dequeue_at__range__gte_0="2020-01-01").ids) == 1
        assert root.open(ATTEMPTS, duration__range__gte="0").ids == []


@pytest.mark.django_db
def test_large_numbers_may_be_grouped(root: Visitor) -> None:
    pk = send(max_attempts=1_000_000)
    with override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="de"):
        page = root.open(MESSAGES)
        assert page.count.endswith("1 Nachricht")
        question = root.act(MESSAGES, "cancel", [pk])
        assert root.confirm(question).said == ["1 Nachricht abgebrochen."]


def test_a_task_is_broken_behind_dots_and_underscores_and_escaped() -> None:
    shown = str(display.task("<b>_shop.tasks.send_receipt"))
    assert "send_<wbr>receipt" in shown
    assert "&lt;b&gt;_<wbr>shop.<wbr>tasks<" in shown
