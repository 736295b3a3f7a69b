"""Emits the events that suspended messages wait for, with a payload that a user writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.parts.columns import is_suspended
from django_pgqueue.admin.parts.database import alias
from django_pgqueue.durable import emit
from django_pgqueue.exceptions import EventConflict
from django_pgqueue.models.tables import Message
from django_pgqueue.values.content import read
from django_pgqueue.values.redaction import redacted

if TYPE_CHECKING:
    from django_pgqueue.admin.parts.actions import Outcome

RESERVED = "pgqueue:"
NO_EVENT = gettext_lazy("not waiting for an event")
CONFLICT = gettext_lazy("waiting for an event that was emitted before, with another payload, which stays")


class PayloadForm(forms.Form):
    payload = forms.CharField(
        label=gettext_lazy("Payload"),
        initial="{}",
        widget=forms.Textarea(attrs={"rows": 5, "cols": 60}),
        help_text=gettext_lazy('JSON, such as {"charge": "ch_1"}. The task gets it. Not null.'),
    )

    def clean_payload(self) -> Any:
        try:
            payload = read(self.cleaned_data["payload"], "The payload")
        except ValueError as error:
            message = gettext("This is not JSON that a task can read.")
            raise forms.ValidationError(message) from error
        if payload is None:
            message = gettext("A task that has waited for too long gets null: write another value.")
            raise forms.ValidationError(message)
        try:
            json.dumps(payload, allow_nan=False)
        except ValueError as error:
            message = gettext("NaN and Infinity are not JSON.")
            raise forms.ValidationError(message) from error
        return payload


def by(message: Message) -> str | None:
    """Returns the event that a suspended message waits for.  None: it waits for something else."""
    if not is_suspended(message) or message.awaited_event is None:
        return None
    return None if message.awaited_event.startswith(RESERVED) else message.awaited_event


def emit_for(ids: list[int], payload: Any, outcome: Outcome) -> None:
    """Emits what these messages wait for, each event once."""
    fields = ("pk", "attempt", "unlock_at", "suspended_attempt", "awaited_event")
    there = {row.pk: row for row in Message.objects.using(alias()).filter(pk__in=ids).only(*fields)}
    told: dict[str, bool] = {}
    for pk in ids:
        event = by(there[pk]) if pk in there else None
        if event is None:
            outcome.passed[NO_EVENT].append(pk)
            continue
        if event not in told:
            told[event] = _emit(event, payload)
        if told[event]:
            outcome.done.append(pk)
        else:
            outcome.passed[CONFLICT].append(pk)


def _emit(event: str, payload: Any) -> bool:
    try:
        with redacted():
            emit(event, payload, database=alias())
    except EventConflict:
        return False
    return True
