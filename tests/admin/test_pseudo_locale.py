"""Whatever a person reads in the admin can be translated: in a language of brackets, no word stands outside of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import django
import pytest
from django.utils import translation

from django_pgqueue import control
from django_pgqueue.functions import Wait
from django_pgqueue.models import Message
from tests.admin.test_browser import OVERVIEW, queue, settled_by_people
from tests.admin.test_durable import ask, suspend
from tests.admin.test_insights import INSIGHTS
from tests.support import translations
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

    from tests.support.admin_page import Element, Visitor

__all__ = ["queue", "settled_by_people"]

pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

HERE = "/admin/django_pgqueue/"
EACH = re.compile("/(message|schedule)/[^/]+/change/$")
LISTS = ("queuestate", "schedule", "worker", "channel", "binding", "exchange", "edit", "event")
PER_KIND = 1
"""One page of a kind, but those of all messages and schedules: each is in another state."""
READ = ("title", "aria-label", "placeholder", "data-refused", "data-failed", "data-stopped", "data-label")
DATA = {"pre", "code", "script", "style", "time", "option"}
"""Elements whose text is a value, or text of an error."""
INLINE = {"a", "abbr", "b", "em", "span", "strong"}
WORDS = re.compile(r"[^\W\d_]{2,}")
# Names and values of the rows, and what is the same in all languages.
VALUE = re.compile(
    r"""\b(?:\w+\.)+\w+\b | \b\w+(?:[-:]\w+)+ | \b(?:ms|min|kB|MB|UTC|web\d|p\d\d|JSON|CSV)\b
    | \b(?:default|mail|slow|long|batch|expired|unknown|warehouse|orders?|books|resting|gone|wrong|whenever)\b
    | \b(?:Ada|remind\ Ada|America/New_York|ship|nap|root|audit) \b
    | \b(?:send_receipt|book_courier|send_reminder|monthly_report|crashed) \b | manage\.py
    | ValueError | ConnectionError | \bsent\b | alert | script | AttemptLost | 9\ \*\ \*\ mon | '\S+' | \^\S+\$
    | \bsend\b | [A-Z][a-z]{2}\ \d+ """,
    re.VERBOSE,
)
# What exceptions, PostgreSQL, the code and the package cronsim say is English in each language.
ENGLISH = re.compile(
    r"Tea shop( administration)?|Courier bookings|Orders|Parcels|Products|Receipts|Sales reports|"
    r"AttemptLost: .*|the lock of worker .* ran out.*|.*, line \d+, in \w+|At 00:00 on the first day of every month.*|"
    r"The courier's line is busy.*|The voucher TEA-2019 has expired|page 17 of 40|shop\.tasks has no 'new'\.|"
    r"At 09:00 on Monday.*|At 00:00 on day 1.*|.*is not a cron expression.*|.*cron.*whenever.*|Django"
)


@pytest.fixture
def brackets(tmp_path: Path, settings: Settings) -> Iterator[None]:
    """A language in which each text of this package and of Django is itself, in brackets."""
    made = translations.Plain()
    root = Path(django.__file__).parent
    files = [root / "conf/locale/en/LC_MESSAGES/django.po", *root.glob("contrib/*/locale/en/LC_MESSAGES/django.po")]
    for source in (translations.in_sources(), *map(translations.catalogue, files)):
        for entry in source:
            if entry.id and made.get(entry.id, entry.context) is None:
                ids: Any = entry.id
                string = bracketed(ids) if isinstance(ids, str) else tuple(map(bracketed, ids))
                made.add(ids, string, context=entry.context)
    place = tmp_path / "xx" / "LC_MESSAGES"
    place.mkdir(parents=True)
    (place / "django.mo").write_bytes(translations.compiled(made))
    settings.LOCALE_PATHS = [str(tmp_path)]
    with translation.override("xx"):
        yield


def bracketed(text: str) -> str:
    return f"⟦{text}⟧"


def bare(text: str) -> str:
    """Returns what of a text is neither translated nor a value.

    >>> bare("⟦2 messages of ⟦a queue⟧⟧: mail, and more")
    'and more'
    """
    depth, outside = 0, []
    for character in text:
        depth += (character == "⟦") - (character == "⟧")
        if not depth:
            outside.append(character)
    left = ENGLISH.sub("", " ".join("".join(outside).replace("⟧", " ").split()))
    return " ".join(WORDS.findall(VALUE.sub("", left)))


def texts(element: Element) -> Iterator[str]:
    """Yields each text that a person reads, or hears: whole blocks, so that a sentence with links stays together."""
    for each in element.all():
        yield from (each.attributes[name] for name in READ if name in each.attributes)
        if each.tag == "input" and each.attributes.get("type") in {"submit", "button"}:
            yield each.attributes.get("value", "")
        if each.tag not in {*INLINE, *DATA}:
            yield block(each)


def block(element: Element) -> str:
    inside = (
        child if isinstance(child, str) else "\N{NO-BREAK SPACE}" + (block(child) if child.tag in INLINE else "")
        for child in element.children
    )
    return "".join(inside)


def links(element: Element) -> Iterator[str]:
    for link in element.all("a"):
        address = link.attributes.get("href", "")
        if urlsplit(address).path.startswith(HERE):
            yield address


def kind(address: str) -> str:
    return re.sub(r"\d+|(?<=/)[^/]+(?=/(change|history|delete)/)", "*", urlsplit(address).path)


@pytest.mark.usefixtures("settled_by_people")
def test_no_word_of_any_page_is_left_untranslated(root: Visitor, brackets: None) -> None:
    suspend(Wait(name="nap", kind="sleep", delay_ms=3_600_000))
    ask()
    control.edit("move", control.Filter(queue="mail", task_contains="send"), queue="slow", by="Ada")
    waits = Message.objects.get(queue="batch").pk
    todo = [
        OVERVIEW, INSIGHTS, "/admin/", MESSAGES, ATTEMPTS,
        f"{MESSAGES}edit/?queue=mail&priority=1", f"{MESSAGES}edit/?queue=mail&status=ready", f"{MESSAGES}approvals/",
        f"{ATTEMPTS}errors/?queue=mail", f"{ATTEMPTS}edit/?status__exact=failed",
        f"{HERE}exchange/orders/change/?routing_key=order.paid",
        f"{HERE}exchange/orders/change/?routing_key=nobody", f"{HERE}exchange/orders/delete/",
        *(f"{HERE}{model}/" for model in LISTS),
        *(f"{HERE}{model}/add/" for model in ("queuestate", "schedule", "channel", "binding", "exchange")),
    ]  # fmt: skip
    found: dict[str, set[str]] = {}
    seen: Counter[str] = Counter()
    known = set(todo)

    def look(address: str, page: Page) -> None:
        for text in texts(page.root):
            if words := bare(text):
                found.setdefault(words, set()).add(address)

    while todo:
        address = todo.pop(0)
        page = Page(root.client.get(address, follow=True))
        look(address, page)
        for link in links(page.root):
            if link not in known and not urlsplit(link).query and (seen[kind(link)] < PER_KIND or EACH.search(link)):
                seen[kind(link)] += 1
                known.add(link)
                todo.append(link)
    for action, more in (("postpone", {}), ("emit", {}), ("run_now", {"page": str(waits)}), ("cancel", {})):
        selected = {"action": action, "index": "0", "_selected_action": str(waits), **more}
        look(action, Page(root.client.post(MESSAGES, selected)))
        look(
            f"{action}, and its outcome", Page(root.client.post(MESSAGES, {**selected, "confirmed": "1"}, follow=True))
        )
    assert seen[f"{MESSAGES}*/change/"] >= 10
    assert not found, "\n".join(f"{words!r}: {sorted(where)[:3]}" for words, where in found.items())
