"""The catalogues: whole, current, and of one mind with the sources and with Django."""

from __future__ import annotations

import re

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.utils import translation

from django_pgqueue.admin.dashboards.overview import PAGES
from django_pgqueue.models import words
from tests.support import translations

PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\w*\}")


@pytest.fixture(scope="module", params=translations.LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.once
def test_each_text_of_the_sources_is_translated_and_no_entry_is_stale(language: str) -> None:
    made = translations.current(language)
    known = translations.catalogue(translations.file_of(language))
    how = "run: python -m tests.support.translations, and translate what it lists"
    assert {(entry.id, entry.context) for entry in known} == {(entry.id, entry.context) for entry in made}, how
    assert not list(translations.untranslated(known)), how
    assert translations.file_of(language).read_bytes() == translations.written(made), how


@pytest.mark.once
def test_the_compiled_catalogue_is_that_of_the_texts(language: str) -> None:
    assert translations.file_of(language, "mo").read_bytes() == translations.compiled(translations.current(language))


@pytest.mark.once
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    wrong = []
    for entry in translations.catalogue(translations.file_of(language)):
        if not entry.id:
            continue
        ids, strings = ([each] if isinstance(each, str) else list(each) for each in (entry.id, entry.string or ()))
        for msgid, string in zip(ids, strings, strict=True):
            if sorted(PLACEHOLDER.findall(msgid)) != sorted(PLACEHOLDER.findall(string)):
                wrong.append(f"{msgid!r}: {string!r}")
    assert not wrong


def test_no_entry_changes_a_word_of_django(language: str) -> None:
    entries = translations.catalogue(translations.file_of(language))
    own = {translations.singular(entry.id) for entry in entries if entry.id and entry.context is None}
    assert not translations.words_of_django() & own


def test_no_two_actions_of_a_list_have_one_name(language: str) -> None:
    """In German, Pause and Stop of a worker had."""
    with translation.override(language):
        for model, admin in site._registry.items():
            names = [str(getattr(admin, str(action)).short_description) for action in admin.actions or ()]
            assert len(names) == len(set(names)), (model, names)


def test_workers_are_idle_or_busy_and_neither_asleep_nor_awake() -> None:
    told = [translations.singular(entry.id) for entry in translations.in_sources() if entry.id]
    assert not [text for text in told if re.search(r"\b(asleep|awake)\b", text)]


def test_fields_have_the_names_that_django_would_give_them_but_translated() -> None:
    named = {name: str(word) for name, word in words.FIELDS.items() if name != "message_id"}
    assert named == {name: name.replace("_", " ") for name in named}
    messages = apps.get_model("django_pgqueue", "message")
    with translation.override("de"):
        assert str(messages._meta.get_field("priority").verbose_name) == "Priorität"
        assert str(messages._meta.verbose_name_plural) == "Nachrichten"
        # Django's "Messages" are those of django.contrib.messages.
        assert str(PAGES["message"][2]) == "Nachrichten"
