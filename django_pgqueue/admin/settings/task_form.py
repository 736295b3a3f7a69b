"""The parts that the forms of the settings share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from django.utils.translation import gettext

from django_pgqueue.admin.parts.database import alias
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.models.words import FIELDS
from django_pgqueue.values.arguments import is_max_attempts

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask


class NamedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form whose fields have the names of the model's fields, in the language of the page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if field.label is None and name in FIELDS:
                field.label = capfirst(FIELDS[name])


class TaskForm(NamedForm):
    """A form of a row that enqueues a task, in the database that the page is about."""

    def clean_max_attempts(self) -> int | None:
        given: int | None = self.cleaned_data["max_attempts"]
        if not is_max_attempts(given):
            message = gettext("This is a whole number from 1 on, or empty.")
            raise ValidationError(message)
        return given

    def check_backend(self, path: str, task: AnyTask) -> None:
        backend = task.get_backend()
        if not isinstance(backend, PgQueueBackend) or backend.settings.database != alias():
            message = gettext("{task} has a backend that does not keep its jobs in this database.").format(task=path)
            raise ValidationError(message)
