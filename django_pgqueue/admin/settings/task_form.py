"""The fields that the forms of bindings and of schedules share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext

from django_pgqueue.admin.parts.database import alias
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.values.arguments import is_max_attempts

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask


class TaskForm(forms.ModelForm):  # type: ignore[type-arg]
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
