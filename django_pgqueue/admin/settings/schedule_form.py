"""The form of a schedule that is made by hand: it refuses values that a worker could not use."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.conf import settings
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db.models import TextField
from django.db.models.functions import Cast
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.admin.parts.database import alias
from django_pgqueue.admin.settings.task_form import TaskForm
from django_pgqueue.backend.schedules import check_public
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidContent, InvalidSchedule, UnknownTask
from django_pgqueue.models.tables import Schedule
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.schedule import Rule, check_call, zone
from django_pgqueue.values import content, limits, names
from django_pgqueue.values.times import MILLISECOND

if TYPE_CHECKING:
    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.compat import AnyTask


class Decoder(json.JSONDecoder):
    """Refuses what Python reads in no other way: numbers of thousands of digits, and thousands of brackets."""

    def decode(self, s: str) -> Any:  # type: ignore[override]
        try:
            return super().decode(s)
        except (ValueError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), s, 0) from error


class ScheduleForm(TaskForm):
    COLUMNS = (
        "task", "content", "cron", "interval_ms", "timezone", "catch_up", "queue", "priority", "max_attempts",
    )  # fmt: skip

    name = forms.CharField(max_length=limits.MAX_NAME_BYTES, widget=AdminTextInputWidget)
    task = forms.CharField(
        widget=AdminTextInputWidget, help_text=gettext_lazy("Dotted path of a task, such as shop.tasks.send_receipt.")
    )
    args = forms.JSONField(
        required=False,
        initial=list,
        label=gettext_lazy("Positional arguments"),
        decoder=Decoder,
        widget=AdminTextareaWidget(attrs={"rows": 3}),
        help_text=gettext_lazy("A JSON array."),
    )
    kwargs = forms.JSONField(
        required=False,
        initial=dict,
        label=gettext_lazy("Keyword arguments"),
        decoder=Decoder,
        widget=AdminTextareaWidget(attrs={"rows": 3}),
        help_text=gettext_lazy("A JSON object."),
    )
    cron = forms.CharField(
        required=False,
        empty_value=None,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Minute hour day month weekday, such as “30 2 * * mon-fri”. Or an interval:"),
    )
    interval = forms.DurationField(
        label=gettext_lazy("Interval"),
        required=False,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Such as “00:05:00” for every five minutes."),
    )
    timezone = forms.CharField(
        initial=lambda: settings.TIME_ZONE,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Such as Europe/Berlin."),
    )
    catch_up = forms.ChoiceField(choices=Schedule.CatchUp.choices, initial="one", label=gettext_lazy("Missed runs"))
    queue = forms.CharField(initial="default", widget=AdminTextInputWidget)
    priority = forms.IntegerField(initial=0, min_value=-100, max_value=100)
    max_attempts = forms.IntegerField(
        required=False, help_text=gettext_lazy("Number of attempts when the task raises an exception. Empty: one.")
    )

    class Meta:
        model = Schedule
        fields = ("name", "task", "cron", "timezone", "catch_up", "queue", "priority", "max_attempts")

    rule: Rule

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and "args" in self.fields:
            self.initial.update(self._call())
            if self.instance.interval_ms is not None:
                with suppress(OverflowError):  # written by hand: the page says that it is invalid
                    self.initial["interval"] = dt.timedelta(milliseconds=self.instance.interval_ms)
        self.is_new = not self.instance.pk
        self.before = self._rule_columns()

    def _call(self) -> dict[str, Any]:
        """Returns the arguments that the row has."""
        try:
            self.instance.refresh_from_db(using=alias(), fields=["content"])  # else a router might send it elsewhere
        except (ValueError, RecursionError):  # written by hand: it is shown as it stands, and has to be corrected
            row = Schedule.objects.using(alias()).filter(pk=self.instance.pk)
            text = row.values_list(Cast("content", TextField()), flat=True).first()
            return {"args": InvalidJSONInput(text or ""), "kwargs": {}}
        call = self.instance.content if isinstance(self.instance.content, dict) else {}
        return {"args": call.get("args", []), "kwargs": call.get("kwargs", {})}

    @property
    def rule_has_changed(self) -> bool:
        return self.is_new or self.before != self._rule_columns()

    def clean_name(self) -> str:
        name = names.name_of("schedule", self.cleaned_data["name"], ValidationError)
        if Schedule.objects.using(alias()).filter(pk=name).exists():
            message = gettext("There is a schedule “{name}” already.").format(name=name)
            raise ValidationError(message)
        return name

    def clean_timezone(self) -> str:
        name: str = self.cleaned_data["timezone"]
        try:
            zone(name)
        except InvalidSchedule as error:
            raise ValidationError(str(error)) from error
        return name

    def clean_task(self) -> str:
        path: str = self.cleaned_data["task"]
        registry.autodiscover()
        try:
            check_public(path)
            task = registry.find(path)
        except (InvalidSchedule, UnknownTask) as error:
            raise ValidationError(str(error)) from error
        self.check_backend(path, task)
        return path

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        self._clean_rule(given)
        if not {"task", "args", "kwargs", "queue", "priority"} - set(given):
            self._clean_call(registry.find(given["task"]), given)
        return given

    def _clean_rule(self, given: dict[str, Any]) -> None:
        if {"cron", "interval", "timezone"} - set(given):
            return
        cron, interval = given["cron"], given["interval"]
        if (cron is None) == (interval is None):
            self.add_error("cron", gettext("Give either a cron expression or an interval, and not both."))
            return
        try:
            interval_ms = None if interval is None else interval // MILLISECOND
            self.rule = Rule(cron=cron, interval_ms=interval_ms, timezone=given["timezone"])
        except InvalidSchedule as error:
            self.add_error("interval" if cron is None else "cron", str(error))
            return
        self.instance.interval_ms = interval_ms

    def _clean_call(self, task: AnyTask, given: dict[str, Any]) -> None:
        args = [] if given["args"] is None else given["args"]
        kwargs = {} if given["kwargs"] is None else given["kwargs"]
        if not isinstance(args, list):
            self.add_error("args", gettext("This is not a JSON array."))
        if not isinstance(kwargs, dict):
            self.add_error("kwargs", gettext("This is not a JSON object."))
        if {"args", "kwargs"} & set(self.errors):
            return
        max_bytes = cast("PgQueueBackend", task.get_backend()).settings.max_content_bytes
        try:
            check_call(task.func, args, kwargs, takes_context=task.takes_context)
            content.encode({"args": args, "kwargs": kwargs}, max_bytes=max_bytes)
        except (InvalidSchedule, InvalidContent) as error:
            self.add_error("args", str(error))
        try:
            task.using(queue_name=given["queue"], priority=given["priority"])
        except InvalidTask as error:
            self.add_error("queue", str(error))
        self.instance.content = {"args": args, "kwargs": kwargs}

    def _rule_columns(self) -> tuple[Any, ...]:
        return self.instance.cron, self.instance.interval_ms, self.instance.timezone
