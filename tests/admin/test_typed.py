"""Whatever somebody types into an address or a form of any page, no page breaks.

The pages come from the URLs of the admin, and what can be typed from the pages themselves: new ones are included.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urljoin

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote as quoted
from django.db import transaction
from django.urls import reverse

from tests.admin.test_permissions import keys
from tests.support.admin_page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.admin.test_permissions import Keys
    from tests.support.admin_page import Element, Visitor

__all__ = ["keys"]

pytestmark = pytest.mark.slow

NASTY = [
    "", "%00", "%ED%A0%80", "%FF", "9" * 30, "9" * 19, "-1", "x", "2026-02-30", "%D9%A3", "1.5", "NaN", "1e999",
    "null", "{}", "%5B" * 3_000, f"%5B{'9' * 5_000}%5D", "99999999:00:00", "x" * 10_240, "%E2%80%AE", "%22%27%3C",
]  # fmt: skip
KNOWN = ["o", "p", "q", "e", "_popup", "_to_field", "_facets", "_changelist_filters", "database", "nonsense", "id__in"]
QUERIES = ["live=", "live=%00", "live=1&live=x", "live=page", "download=csv", "download=json", "columns=", "p=1&p=x"]
TYPED = ["_selected_action", "action", "index", "select_across", "page", "newest", "confirmed", "_popup"]
PAGES = {
    model._meta.model_name: one
    for model, one in admin.site._registry.items()
    if model in set(apps.get_app_config("django_pgqueue").get_models())
}


class Posted(NamedTuple):
    """What a form of a page sends."""

    url: str
    fields: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.fields]

    def with_(self, name: str, value: str) -> str:
        """The body of a request, with another value, which is encoded already."""
        others = (f"{quote(key)}={quote(kept)}" for key, kept in self.fields if key != name)
        return "&".join([f"{quote(name)}={value}", *others])


def addresses(model: str, keys: Keys) -> list[str]:
    """All pages about a model: of a list, and of one of its rows."""
    kind = PAGES[model].model
    key = keys.get(model) or (
        None if model == "overview" else kind._default_manager.values_list("pk", flat=True).first()
    )
    given = {"object_id": quoted(str(key or "1")), "message_id": keys["message"]}
    return [
        reverse(f"admin:{one.name}", kwargs={name: given[name] for name in one.pattern.converters})
        for one in PAGES[model].get_urls()
        if one.name
    ]


def names_on(page: Page) -> list[str]:
    """What the page's fields send, and what its links ask for."""
    fields = [
        one.attributes.get("name") for one in page.root.all() if one.tag in {"input", "select", "textarea", "button"}
    ]
    links = [link.attributes.get("href", "") for link in page.root.all("a")]
    asked = [name for link in links if link.startswith("?") for name, _ in parse_qsl(link[1:], keep_blank_values=True)]
    return [name for name in dict.fromkeys([*fields, *asked]) if name and name != "csrfmiddlewaretoken"]


def forms_on(page: Page, url: str) -> Iterator[Posted]:
    """The forms that change something, once for each of their buttons and actions."""
    for form in page.root.all("form"):
        target = urljoin(url, form.attributes.get("action") or url)
        if form.attributes.get("method", "").lower() != "post" or "django_pgqueue" not in target:
            continue
        fields, choices = sent_by(form)
        for name, value in [("", ""), *choices]:
            yield Posted(target, tuple((fields | ({name: value} if name else {})).items()))


def sent_by(form: Element) -> tuple[dict[str, str], list[tuple[str, str]]]:
    fields: dict[str, str] = {}
    choices: list[tuple[str, str]] = []
    for one in form.all():
        name, value = one.attributes.get("name", ""), one.attributes.get("value", "")
        if not name or name == "csrfmiddlewaretoken":
            continue
        if one.tag == "select":
            choices += [
                (name, option.attributes["value"]) for option in one.all("option") if option.attributes["value"]
            ]
            value = next((found for choice, found in choices if choice == name), "")
        elif one.tag == "button":
            choices.append((name, value))
        fields[name] = one.raw_text if one.tag == "textarea" else value
    return fields, choices


def answered(root: Visitor, url: str, data: str | None = None, method: str = "get") -> Any:
    """Sends a request, and takes back what it did."""
    answer: Any
    with transaction.atomic():
        if data is None:
            answer = getattr(root.client, method)(url)
        else:
            answer = root.client.generic("POST", url, data, content_type="application/x-www-form-urlencoded")
        transaction.set_rollback(True)
    assert answer.status_code < 500, (url[:300], (data or "")[:300], answer.content[:300])
    return answer


def page_at(root: Visitor, url: str) -> Page | None:
    answer = answered(root, url)
    is_page = answer.status_code == 200 and answer["Content-Type"].startswith("text/html")
    return Page(answer) if is_page else None


@pytest.mark.parametrize("model", PAGES)
def test_no_address_that_somebody_types_breaks_a_page(root: Visitor, keys: Keys, model: str) -> None:
    root.client.raise_request_exception = False
    nasty = itertools.cycle(NASTY)
    for url in addresses(model, keys):
        page = page_at(root, url)
        names = dict.fromkeys([*KNOWN, *(names_on(page) if page else ())])
        for query in (*QUERIES, *(f"{quote(name)}={next(nasty)}" for name in names)):
            answered(root, f"{url}?{query}")
        for method in ("put", "patch", "delete", "options", "head"):
            answered(root, url, method=method)


@pytest.mark.parametrize("model", PAGES)
def test_nothing_that_somebody_sends_breaks_a_page(root: Visitor, keys: Keys, model: str) -> None:
    root.client.raise_request_exception = False
    nasty = itertools.cycle(NASTY)
    forms = {Posted(url, (("x", "1"),)) for url in addresses(model, keys)}
    for url in addresses(model, keys):
        page = page_at(root, url)
        forms |= set(forms_on(page, url)) if page else set()
    for form in sorted(forms):
        for name in dict.fromkeys([*form.names, *TYPED]):
            answered(root, form.url, form.with_(name, next(nasty)))


@pytest.mark.parametrize("model", PAGES)
def test_no_key_that_somebody_types_breaks_a_page(root: Visitor, keys: Keys, model: str) -> None:
    root.client.raise_request_exception = False
    for value in [one for one in NASTY if one]:
        for page in ("change/", "change/?live=page", "history/", "delete/"):
            url = f"/admin/django_pgqueue/{model}/{value}/{page}"
            answered(root, url)
            answered(root, url, "post=yes")
