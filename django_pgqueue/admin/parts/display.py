"""Formats values for a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from django_pgqueue.admin.parts.expressions import PRETTY_LENGTH, SHORT_LENGTH
from django_pgqueue.models.words import STATUSES
from django_pgqueue.monitoring.overview.formatting import NOTHING, number, outside, relative, span
from django_pgqueue.values.times import local

if TYPE_CHECKING:
    import datetime as dt

__all__ = [
    "NOTHING",
    "attempt",
    "block",
    "breakable",
    "hidden",
    "json",
    "label",
    "line",
    "moment",
    "number",
    "of",
    "quiet",
    "relative",
    "sentence",
    "shortened",
    "span",
    "status",
    "task",
]

# JSON escapes a newline within a string, so these matches are always between values.
EMPTY = re.compile(r"([\[{])\n *([\]}])")


def status(value: str) -> str:
    """Returns the status of a message or of an attempt for people."""
    return str(STATUSES.get(value, value))


def label(word: str, tone: str) -> SafeString:
    return format_html('<span class="pgqueue-label pgqueue-{}">{}</span>', tone, word)


def quiet(words: str) -> SafeString:
    return format_html('<span class="pgqueue-quiet">{}</span>', words)


def hidden() -> SafeString:
    return quiet(gettext("You have no permission to see this."))


def line(words: str) -> SafeString:
    """Returns a second, quieter line of a cell."""
    return format_html(' <span class="pgqueue-quiet pgqueue-line">{}</span>', words)


def task(name: str | None) -> SafeString | str:
    """Shows a task's function before its module, because most tasks share a module."""
    if name is None:
        return quiet(gettext("raw message"))
    module, _, function = name.rpartition(".")
    if not module:
        return shortened(name, 60)
    return format_html(
        '<span title="{}">{} <span class="pgqueue-quiet pgqueue-line">{}</span></span>',
        name[:SHORT_LENGTH],
        breakable(shortened(function, 60)),
        breakable(shortened(module, 60)),
    )


def breakable(name: SafeString | str) -> SafeString:
    """Lets a line of a narrow column end behind a dot or an underscore, and not only anywhere."""
    if isinstance(name, SafeString):
        return name
    return mark_safe(escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>"))  # noqa: S308 -- escaped


def attempt(number: int, most: int | None) -> str:
    """Returns the number of an attempt, and the most that there may be, if an error is retried."""
    return str(number) if most is None else of(number, most)


def of(part: object, whole: object) -> str:
    return gettext("{part} of {whole}").format(part=part, whole=whole)


def moment(value: dt.datetime | None) -> SafeString | str:
    """Formats a time to the second, in the current time zone."""
    if value is None:
        return NOTHING
    if words := outside(value):
        return words
    shown = local(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        shown.isoformat(),
        shown.isoformat(sep=" ", timespec="milliseconds"),
        shown.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
    )


def shortened(text: str | None, length: int = SHORT_LENGTH) -> SafeString | str:
    """Returns one line of a text; the user hovers over it to read more."""
    if not text:
        return NOTHING
    line = " ".join(text.split())
    if len(line) <= length and line == text:
        return text
    short = line if len(line) <= length else line[: length - 1].rstrip() + "…"
    return format_html('<span title="{}">{}</span>', text[:SHORT_LENGTH], short)


def sentence(text: SafeString | str) -> SafeString | str:
    """Returns a text that needs a wide column."""
    return text if text == NOTHING else format_html('<span class="pgqueue-wide">{}</span>', text)


def json(pretty: str | None) -> SafeString | str:
    """Shows JSON as PostgreSQL formats it, but empty lists and objects on one line."""
    # Not in a text that will be cut off: shortened here, it would look complete.
    return block(pretty if pretty is None or len(pretty) > PRETTY_LENGTH else EMPTY.sub(r"\1\2", pretty))


def block(text: str | None) -> SafeString | str:
    """Shows a text unchanged, cut off at PRETTY_LENGTH."""
    if text is None:
        return NOTHING
    if len(text) <= PRETTY_LENGTH:
        return format_html('<pre class="pgqueue-block" tabindex="0">{}</pre>', text)
    return format_html(
        '<div><pre class="pgqueue-block" tabindex="0">{}…</pre><p class="pgqueue-quiet">{}</p></div>',
        text[:PRETTY_LENGTH],
        gettext("These are the first {count} characters.").format(count=number(PRETTY_LENGTH)),
    )
