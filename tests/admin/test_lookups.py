"""The address of a list may ask for what its own filters offer, and nothing else."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.messages.storage.cookie import CookieStorage
from django.db.models import JSONField
from django.db.models.constants import LOOKUP_SEP
from django.http import QueryDict
from django.test import RequestFactory
from django.urls import reverse

from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin
from django_pgqueue.models import Overview
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, fail, retry, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.models import Field, Model

    from tests.support.admin_page import Visitor

    Look = Callable[[type[Model], dict[str, str]], Any]

PAGES = {model: page for model, page in admin.site._registry.items() if model._meta.app_label == "django_pgqueue"}
LISTS = {model: page for model, page in PAGES.items() if model is not Overview}
CARD = "5500-4711"
SOME = 3

pytestmark = pytest.mark.usefixtures("clock")


def list_of(model: type[Model]) -> str:
    return reverse(f"admin:django_pgqueue_{model._meta.model_name}_changelist")


def lookups_of(model: type[Model]) -> Iterator[str]:
    """All for one column of each kind, and some for each of the others: hundreds of requests take long."""
    kinds: set[type] = set()
    for field in model._meta.get_fields():
        yield from itertools.islice(lookups(field), None if type(field) not in kinds else SOME)  # type: ignore[arg-type]
        kinds.add(type(field))


def lookups(field: Field[Any, Any]) -> Iterator[str]:
    """All that Django knows to look up in a column, and one level further."""
    names = sorted({*field.get_lookups(), "no_such_lookup"})
    yield field.name
    yield from (f"{field.name}{LOOKUP_SEP}{name}" for name in names)
    if isinstance(field, JSONField):
        yield from (f"{field.name}__kwargs__card__{name}" for name in ("startswith", "gte", "regex", "isnull"))
        yield from (f"{field.name}__0", f"{field.name}__args__0__iregex")
    yield from (f"{field.name}__range__gte", f"{field.name}__year__gte", f"{field.name}__date")


def own_parameters(model: type[Model], root: Visitor) -> set[str]:
    page: Any = LISTS[model]
    request = RequestFactory().get("/")
    request.user = root.client.get("/admin/").wsgi_request.user
    specs = page.get_changelist_instance(request).filter_specs
    # One that has nothing to choose from is not shown, and takes its parameter all the same.
    named = {getattr(kind, "parameter_name", "") for kind in page.get_list_filter(request)}
    return {*(name for spec in specs for name in spec.expected_parameters()), *named, *page.parameters}


def test_every_admin_page_of_the_package_refuses_lookups() -> None:
    assert len(PAGES) == 12
    assert all(isinstance(page, ReadOnlyAdmin) for page in PAGES.values())


@pytest.fixture
def look(root: Visitor) -> Look:
    """Asks a list without the middleware, which takes most of the time of hundreds of requests."""
    user = root.client.get("/admin/").wsgi_request.user

    def look(model: type[Model], parameters: dict[str, str]) -> Any:
        request = RequestFactory().get(list_of(model), parameters)
        request.user = user
        request._messages = CookieStorage(request)  # type: ignore[attr-defined]
        return LISTS[model].changelist_view(request)

    return look


@pytest.mark.slow
@pytest.mark.parametrize("model", LISTS, ids=lambda model: model.__name__)
def test_a_list_accepts_only_its_own_filters_and_its_key(root: Visitor, look: Look, model: type[Model]) -> None:
    own = own_parameters(model, root)
    for name in lookups_of(model):
        if name not in own:
            answer = look(model, {name: "1"})
            assert (answer.status_code, getattr(answer, "url", "")) == (302, f"{list_of(model)}?e=1"), name
    page = root.open(list_of(model), priority__gte="1")
    assert page.said[-1].startswith("This list has no filter “priority__gte”.")


@pytest.mark.parametrize("model", LISTS, ids=lambda model: model.__name__)
def test_a_refused_lookup_is_refused_beside_accepted_parameters(look: Look, model: type[Model]) -> None:
    for field in {type(field): field for field in model._meta.get_fields()}.values():
        for more in ({"e": "1"}, {"q": "1"}, {"_popup": "1"}, {"_facets": "True"}, {"pk": "1"}, {"all": ""}):
            answer = look(model, {f"{field.name}__icontains": "4", **more})
            told = b"Something\xe2\x80\x99s wrong" in answer.content or b"wrong with your database" in answer.content
            assert answer.status_code == 302 or told, (field.name, more)


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_no_other_way_of_django_leads_to_a_column(root: Visitor, model: type[Model]) -> None:
    """Facets count, pop-ups refer, autocompletion searches, a hierarchy of dates narrows."""
    page: Any = PAGES[model]
    assert page.show_facets is admin.ShowFacets.NEVER
    assert (page.date_hierarchy, page.list_editable) == (None, ())
    asked = {"app_label": "django_pgqueue", "model_name": model._meta.model_name or "", "term": "4"}
    for field in model._meta.get_fields():
        assert root.client.get("/admin/autocomplete/", {**asked, "field_name": field.name}).status_code == 403
        if model in LISTS:
            answer = root.client.get(list_of(model), {"_popup": "1", "_to_field": field.name})
            assert answer.status_code == (200 if getattr(field, "primary_key", False) else 400), field.name


@pytest.mark.parametrize("model", LISTS, ids=lambda model: model.__name__)
def test_a_list_is_sorted_only_by_sortable_columns(root: Visitor, model: type[Model]) -> None:
    page: Any = LISTS[model]
    request = root.client.get(list_of(model)).wsgi_request
    shown = page.get_changelist_instance(request)
    columns, usual = shown.list_display, shown.queryset.query.order_by
    for place in range(-len(columns) - 1, len(columns) + 2):
        for direction in ("", "-"):
            request.GET = QueryDict(f"o={direction}{place}")
            order = page.get_changelist_instance(request).queryset.query.order_by
            by = columns[place] if -len(columns) <= place < len(columns) else None
            assert set(order) == set(usual) or by in page.sortable_by, (place, order)


@pytest.fixture
def secrets(db: None) -> None:
    """A card number wherever a job can say one."""
    content = f'{{"args": ["{CARD}"], "kwargs": {{"card": "{CARD}"}}}}'
    said = f'{{"card": "{CARD}"}}'
    send(content, queue="other", headers=said)
    complete(claim("other")[0], said)
    send(content, queue="broken")
    fail(claim("broken")[0], f"the card {CARD} was refused")
    send(content, headers=said)
    retry(claim()[0], f"the card {CARD} was refused", dequeue_at=2**50, state=said)


@pytest.mark.slow
@pytest.mark.usefixtures("secrets")
def test_content_cannot_be_guessed_letter_by_letter(visitor: Callable[..., Visitor]) -> None:
    """The same answer for what is in a row and for what is not."""
    clerk = visitor("view_message", "view_attempt", "run_message", "change_message", "cancel_message")
    columns = {
        MESSAGES: ("content__kwargs__card", "content__args__0", "headers__card", "state__card", "unique_key"),
        ATTEMPTS: ("content__kwargs__card", "content__args__0", "headers__card", "result__card", "unique_key"),
    }
    for url, names in columns.items():
        for name in names:
            for how in ("startswith", "gte", "regex", "exact"):
                answers = [clerk.client.get(url, {f"{name}__{how}": guess}) for guess in (CARD[:2], "77")]
                assert {answer.status_code for answer in answers} == {302}, (url, name, how)
                posted = clerk.client.post(
                    f"{url}?{name}__{how}={CARD[:2]}",
                    {"action": "run_now", "_selected_action": ["1"], "select_across": "1", "index": "0"},
                )
                assert (posted.status_code, posted["Location"]) == (302, f"{url}?e=1")
        for word in (CARD, CARD[:2], "card"):
            assert clerk.open(url, q=word).ids == []
