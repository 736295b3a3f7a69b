"""Content of messages for users who may see it, without values that no user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.db.models import BooleanField, ExpressionWrapper, Q, TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext

from django_pgqueue.admin.parts import display
from django_pgqueue.admin.parts.database import alias, once
from django_pgqueue.admin.parts.expressions import Pretty, Short
from django_pgqueue.admin.parts.progress import ProgressBar
from django_pgqueue.admin.parts.read_only import may_see_content
from django_pgqueue.backend import lookup
from django_pgqueue.conf import Options
from django_pgqueue.tasks.sensitive import HIDDEN, Sensitivity, is_possible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model
    from django.http import HttpRequest
    from django.utils.safestring import SafeString

LONGEST = 20_000_000
"""A longer text is not searched for sensitive values, and so it is not shown."""


def sensitivity(task: str | None) -> Sensitivity:
    """Follows the options of the backends of the page's database: the strictest, if there are several."""
    options = [
        backend.settings for backend in lookup.pgqueue_backends().values() if backend.settings.database == alias()
    ]
    everything = any(one.sensitive is True or not is_possible(one.sensitive) for one in options)
    names = {name for one in options if not everything and one.sensitive for name in cast("Any", one.sensitive)}
    return Sensitivity.of(task, Options(sensitive=everything or tuple(names)))


class ErrorTexts:
    """Messages and tracebacks of errors, as far as one user may read them.

    A task may raise any error, so the errors of a task with sensitive arguments may quote them.
    """

    def __init__(self, *, sees: bool) -> None:
        self.sees = sees
        self._hidden: dict[str | None, bool] = {}

    @classmethod
    def of(cls, request: HttpRequest) -> ErrorTexts:
        texts: ErrorTexts = once(request, "error texts", lambda: cls(sees=may_see_content(request)))
        return texts

    def hides(self, task: str | None) -> bool:
        if self.sees:
            return False
        if task not in self._hidden:
            self._hidden[task] = bool(sensitivity(task))
        return self._hidden[task]

    def line(self, task: str | None, text: str | None, length: int) -> SafeString | str:
        return display.quiet(gettext("(hidden)")) if text and self.hides(task) else display.shortened(text, length)

    def block(self, task: str | None, text: str | None) -> SafeString | str:
        return display.hidden() if text and self.hides(task) else display.block(text)


def progress_bar(task: str | None, report: str | None, *, sees: bool) -> SafeString | str:
    """Returns the progress of one row of a list, or "" if there is none that the user may see."""
    if not report or not sees:
        return ""
    hides = sensitivity(task)
    if hides.everything:
        return ""
    found = ProgressBar.read(hides.redacted(report) if hides else report)
    return "" if found is None else found.bar()


class ShownContent:
    """The JSON columns of one row, as texts."""

    def __init__(self, row: Model, task: str | None, columns: Sequence[str], *, sees: bool) -> None:
        self.hides = sensitivity(task) if sees else Sensitivity()
        self.sees = sees
        self.texts = self._texts(row, columns) if sees else {}

    def _texts(self, row: Model, columns: Sequence[str]) -> dict[str, str | None]:
        """Fetches the texts, but none that is hidden altogether."""
        rows = type(row)._default_manager.using(alias()).filter(pk=row.pk)  # noqa: SLF001 -- as Django's admin
        if self.hides.everything:
            there = {f"has_{name}": _is_there(name) for name in columns}
            found = rows.values(**there).first() or {}
            return {name: HIDDEN if found.get(f"has_{name}") else None for name in columns}
        if not self.hides:
            found = rows.values(**{f"pretty_{name}": Pretty(name) for name in columns}).first() or {}
            return {name: found.get(f"pretty_{name}") for name in columns}
        whole: dict[str, Any] = {f"whole_{name}": Short(Cast(name, TextField()), length=LONGEST) for name in columns}
        found = rows.values(**whole).first() or {}
        return {name: self.hides.redacted(found.get(f"whole_{name}")) for name in columns}

    def block(self, column: str) -> SafeString | str:
        if not self.sees:
            return display.hidden()
        text = self.texts.get(column)
        return display.quiet(_why_hidden(self.hides)) if text == HIDDEN else display.json(text)

    def progress(self) -> SafeString | str:
        """Returns the report of a task as a bar, and any other JSON as it is."""
        found = ProgressBar.read(self.texts.get("progress"))
        return self.block("progress") if found is None else found.bar()

    def short(self, text: str | None) -> SafeString | str:
        """Returns another text that may contain sensitive values, such as a unique key."""
        if text is None:
            return display.NOTHING
        if not self.sees:
            return display.hidden()
        return display.quiet(gettext("(hidden)")) if self.hides else display.shortened(text)


def _why_hidden(hides: Sensitivity) -> str:
    if not hides.unknown:
        return gettext("(hidden) It is not shown, because it is sensitive.")
    words = gettext(
        "(hidden) This code has no task {task}, so its sensitive arguments are unknown: its content is not shown."
    )
    return words.format(task=hides.path)


def _is_there(column: str) -> Any:
    return ExpressionWrapper(Q(**{f"{column}__isnull": False}), output_field=BooleanField())
