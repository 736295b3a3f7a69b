"""How a value looks on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.html import format_html

from django_pgqueue.admin.expressions import PRETTY_LENGTH, SHORT_LENGTH
from django_pgqueue.fields import EARLIEST_MS, LATEST_MS, to_epoch_ms
from django_pgqueue.overview.words import NOTHING, number, relative, span

if TYPE_CHECKING:
    import datetime as dt

    from django.utils.safestring import SafeString

__all__ = [
    "NOTHING",
    "block",
    "hidden",
    "label",
    "line",
    "moment",
    "number",
    "quiet",
    "relative",
    "sentence",
    "shortened",
    "span",
    "task",
]


def label(word: str, tone: str) -> SafeString:
    return format_html('<span class="pgqueue-label pgqueue-{}">{}</span>', tone, word)


def quiet(words: str) -> SafeString:
    return format_html('<span class="pgqueue-quiet">{}</span>', words)


def hidden() -> SafeString:
    return quiet("You have no permission to see this.")


def line(words: str) -> SafeString:
    """A second, quieter line of a cell."""
    return format_html(' <span class="pgqueue-quiet pgqueue-line">{}</span>', words)


def task(name: str | None) -> SafeString | str:
    """The name of a task's function before that of its module, which is mostly the same for all of them."""
    if name is None:
        return quiet("raw message")
    module, _, function = name.rpartition(".")
    if not module:
        return shortened(name, 60)
    return format_html(
        '<span title="{}">{} <span class="pgqueue-quiet pgqueue-line">{}</span></span>',
        name[:SHORT_LENGTH],
        shortened(function, 60),
        shortened(module, 60),
    )


def moment(value: dt.datetime | None) -> SafeString | str:
    """A time to the second, in the current time zone; one outside of the calendar as the number that it is."""
    if value is None:
        return NOTHING
    if not EARLIEST_MS <= to_epoch_ms(value) <= LATEST_MS:
        return format_html(
            '<span title="milliseconds since 1970, outside of the calendar">{} ms</span>', to_epoch_ms(value)
        )
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        local.isoformat(sep=" ", timespec="milliseconds"),
        local.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
    )


def shortened(text: str | None, length: int = SHORT_LENGTH) -> SafeString | str:
    """One line of a text, with the beginning of the rest to be hovered over."""
    if not text:
        return NOTHING
    line = " ".join(text.split())
    if len(line) <= length and line == text:
        return text
    short = line if len(line) <= length else line[: length - 1].rstrip() + "…"
    return format_html('<span title="{}">{}</span>', text[:SHORT_LENGTH], short)


def sentence(text: SafeString | str) -> SafeString | str:
    """Words that need room to be read."""
    return text if text == NOTHING else format_html('<span class="pgqueue-wide">{}</span>', text)


def block(text: str | None) -> SafeString | str:
    """A text as it stands, cut off where nobody reads any more."""
    if text is None:
        return NOTHING
    if len(text) <= PRETTY_LENGTH:
        return format_html('<pre class="pgqueue-block" tabindex="0">{}</pre>', text)
    return format_html(
        '<div><pre class="pgqueue-block" tabindex="0">{}…</pre>'
        '<p class="pgqueue-quiet">These are the first {} characters.</p></div>',
        text[:PRETTY_LENGTH],
        number(PRETTY_LENGTH),
    )
