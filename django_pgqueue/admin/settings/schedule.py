"""Schedules that are declared in code, or made here."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import connections
from django.db.models import BigIntegerField, Func, Q
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from django_pgqueue import control, functions
from django_pgqueue.admin.parts import actions, audit_log, display
from django_pgqueue.admin.parts.content import ShownContent, sensitivity
from django_pgqueue.admin.parts.database import alias, link, now, once
from django_pgqueue.admin.parts.read_only import ReadOnlyAdmin, may_see_content
from django_pgqueue.admin.settings.schedule_form import ScheduleForm
from django_pgqueue.backend.schedules import declarations
from django_pgqueue.exceptions import DuplicateMessage, InvalidSchedule
from django_pgqueue.models.fields import EpochField
from django_pgqueue.models.tables import Schedule
from django_pgqueue.monitoring.overview.clamped import Moment
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.schedule import ON_TIME, Rule, zone
from django_pgqueue.values.times import time_zone_name, to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString

NEXT_RUNS = 5
INTERVALS: tuple[tuple[int, Callable[[int], str]], ...] = (
    (604_800_000, lambda n: ngettext("every week", "every {count} weeks", n)),
    (86_400_000, lambda n: ngettext("every day", "every {count} days", n)),
    (3_600_000, lambda n: ngettext("every hour", "every {count} hours", n)),
    (60_000, lambda n: ngettext("every minute", "every {count} minutes", n)),
    (1_000, lambda n: ngettext("every second", "every {count} seconds", n)),
    (1, lambda n: ngettext("every millisecond", "every {count} milliseconds", n)),
)
BRIEF = (
    "name",
    "next_at",
    "interval_ms",
    "max_attempts",
    "priority",
    "declared",
    "task",
    "queue",
    "cron",
    "timezone",
    "catch_up",
)


class LastSlot(Func):
    template = (
        "(select l.slot_at from pgqueue_schedule_slot l where l.name = %(expressions)s order by l.slot_at desc limit 1)"
    )
    output_field = EpochField()


class LastMessage(Func):
    template = (
        "(select l.message_id from pgqueue_schedule_slot l where l.name = %(expressions)s "
        "order by l.slot_at desc limit 1)"
    )
    output_field = BigIntegerField()


class PausedFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "paused"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        return [("no", gettext("not paused")), ("yes", gettext("paused"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        return queryset if self.value() is None else queryset.filter(paused_at__isnull=self.value() != "yes")


class DeclaredFilter(admin.SimpleListFilter):
    title = gettext_lazy("declared")
    parameter_name = "declared"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        return [("code", gettext("in code")), ("hand", gettext("by hand"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        return queryset if self.value() is None else queryset.filter(declared=self.value() == "code")


class ScheduleColumns:
    """The columns of a schedule at one moment; ``declared`` has the names of the code's schedules."""

    def __init__(self, now: dt.datetime, declared: set[str], *, sees_content: bool) -> None:
        self.now = now
        self.declared = declared
        self.sees_content = sees_content

    @admin.display(description=gettext_lazy("name"))
    def name(self, schedule: Schedule) -> SafeString:
        return display.breakable(schedule.name)

    @admin.display(description=gettext_lazy("task"))
    def task(self, schedule: Schedule) -> SafeString | str:
        return display.task(schedule.task)

    @admin.display(description=gettext_lazy("runs"))
    def rule(self, schedule: Schedule) -> SafeString | str:
        try:
            words = rule_in_words(rule_of(schedule))
        except InvalidSchedule as error:
            return format_html('<span title="{}">{}</span>', error, display.label(gettext("invalid"), "red"))
        return format_html("{}{}", words, display.line(schedule.cron) if schedule.cron else "")

    @admin.display(description=gettext_lazy("state"))
    def state(self, schedule: Schedule) -> SafeString:
        if (paused := getattr(schedule, "paused", None)) is not None:
            return format_html("{}{}", display.label(gettext("paused"), "grey"), self._ago(paused))
        if schedule.declared and schedule.name not in self.declared:
            return display.label(gettext("no longer in the code"), "amber")
        if to_epoch_ms(schedule.next_at) < to_epoch_ms(self.now - ON_TIME):
            return display.label(gettext("late"), "red")
        return display.label(pgettext("schedule", "active"), "green")

    @admin.display(description=gettext_lazy("next run"))
    def next_at(self, schedule: Schedule) -> SafeString | str:
        if getattr(schedule, "paused", None) is not None:
            return display.NOTHING
        return format_html("{}{}", display.moment(schedule.next_at), self._ago(schedule.next_at))

    @admin.display(description=gettext_lazy("last run"))
    def last(self, schedule: Schedule) -> SafeString | str:
        slot, message_id = getattr(schedule, "last_slot", None), getattr(schedule, "last_message", None)
        if slot is None:
            return display.NOTHING
        if message_id is None:
            return display.moment(slot)
        title = gettext("message {id}").format(id=message_id)
        return link("message_change", display.moment(slot), message_id, title=title)

    @admin.display(description=gettext_lazy("declared"))
    def origin(self, schedule: Schedule) -> str:
        return gettext("in code") if schedule.declared else gettext("by hand")

    @admin.display(description=gettext_lazy("content"))
    def content(self, schedule: Schedule) -> SafeString | str:
        return ShownContent(schedule, schedule.task, ("content",), sees=self.sees_content).block("content")

    @admin.display(description=gettext_lazy("missed runs"))
    def missed(self, schedule: Schedule) -> str:
        return str(dict(Schedule.CatchUp.choices).get(schedule.catch_up, schedule.catch_up))

    @admin.display(description=gettext_lazy("next runs"))
    def next_runs(self, schedule: Schedule) -> SafeString | str:
        try:
            rule = rule_of(schedule)
        except InvalidSchedule as error:
            return str(error)
        slots = list(islice(rule.after(self.now), NEXT_RUNS))
        there = zone(rule.timezone)
        shown = ((display.moment(slot), self._in(there, rule.timezone, slot)) for slot in slots)
        return format_html('<ul class="pgqueue-runs">{}</ul>', format_html_join("", "<li>{}{}</li>", shown))

    def _in(self, there: dt.tzinfo, name: str, slot: dt.datetime) -> SafeString | str:
        """Formats the time in the schedule's own time zone."""
        if name == time_zone_name():
            return ""
        return display.line(gettext("{time} in {zone}").format(time=f"{slot.astimezone(there):%H:%M:%S}", zone=name))

    def _ago(self, moment: dt.datetime) -> SafeString | str:
        far = display.relative(moment, self.now)
        return display.line(far) if far else ""


def rule_of(schedule: Schedule) -> Rule:
    return Rule(cron=schedule.cron, interval_ms=schedule.interval_ms, timezone=schedule.timezone)


def rule_in_words(rule: Rule) -> str:
    """Returns when a schedule runs, for people.  The package cronsim explains a cron expression, in English."""
    if rule.cron is not None:
        return rule.words
    ms = rule.interval_ms or 0
    size, words = next((size, words) for size, words in INTERVALS if ms % size == 0)
    return words(ms // size).format(count=ms // size)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Edits schedules that were made by hand; those that the code declares are changed in the code."""

    is_live_page = True
    form = ScheduleForm
    ordering = ("name",)
    sortable_by = ()
    list_filter = (PausedFilter, DeclaredFilter)
    search_fields = ("name", "task")
    search_help_text = gettext_lazy("A part of the name, or of the task's name.")
    actions = ("pause", "resume", "run_now")
    enqueues = True

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        shown = self.shown(request)
        return (shown.name, shown.state, shown.task, shown.rule, shown.next_at, shown.last, shown.origin, "queue")

    def shown(self, request: HttpRequest) -> ScheduleColumns:
        def look() -> ScheduleColumns:
            registry.autodiscover()
            return ScheduleColumns(now(request), set(declarations(alias())), sees_content=may_see_content(request))

        columns: ScheduleColumns = once(request, "schedules", look)
        return columns

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = (
            self.get_queryset(request)
            .only(*BRIEF)
            .annotate(paused=Moment("paused_at"), last_slot=LastSlot("name"), last_message=LastMessage("name"))
        )
        return found

    def one(self, request: HttpRequest) -> QuerySet[Any]:
        return self.rows(request)

    def matching(self, term: str) -> Q:
        return Q(name__icontains=term) | Q(task__icontains=term)

    # Permissions

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A declared schedule is changed in the code.  The form of others needs permission to see their content."""
        may = admin.ModelAdmin.has_change_permission(self, request)
        if may and isinstance(obj, Schedule):
            hides = sensitivity(obj.task)
            # A schedule that names no task of this code was written by hand, and can be corrected by hand.
            return not obj.declared and may_see_content(request) and (hides.unknown or not hides)
        return may

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """One at a time; one that the code declares would come back within a minute."""
        if not isinstance(obj, Schedule) or (obj.declared and obj.name in self.shown(request).declared):
            return False
        return admin.ModelAdmin.has_delete_permission(self, request)

    # The page of one schedule

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        shown = self.shown(request)
        return [] if obj is None else ["name", shown.state, shown.next_at, shown.next_runs, shown.last]

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        shown = self.shown(request)
        runs = (gettext("Runs"), {"fields": [shown.state, shown.next_at, shown.next_runs, shown.last]})
        if obj is not None and not self.has_change_permission(request, obj):
            what = ["name", shown.origin, shown.task, shown.content, "queue", "priority", "max_attempts"]
            return [
                (None, {"fields": what}),
                (gettext("When"), {"fields": [shown.rule, "timezone", shown.missed]}),
                runs,
            ]
        return [
            (None, {"fields": ["name", "task", "args", "kwargs"]}),
            (gettext("When"), {"fields": ["cron", "interval", "timezone", "catch_up"]}),
            (gettext("How"), {"fields": ["queue", "priority", "max_attempts"]}),
            *([runs] if obj is not None else []),
        ]

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Saves only the fields of the form: a worker may fire the schedule at this moment."""
        if form.rule_has_changed:
            obj.next_at = form.rule.first_after(now(request))
        fields = [*form.COLUMNS, *(["next_at"] if form.rule_has_changed else [])]
        obj.save(using=alias(), **({"update_fields": fields} if change else {"force_insert": True}))
        functions.worker_wake_resting(connections[alias()], obj.queue)

    # Actions

    @admin.action(description=gettext_lazy("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._each(request, queryset, control.pause_schedule, gettext("paused"), gettext("already paused"))

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._each(
            request, queryset, control.resume_schedule, gettext("resumed with the next run"), gettext("not paused")
        )

    @admin.action(description=gettext_lazy("Run now"), permissions=["run"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Enqueues an extra job; the slots do not change."""
        made: list[int] = []
        chosen, done_before = self._chosen(request, queryset), actions.done_since_shown(request, Schedule)
        for name in (name for name in chosen if name not in done_before):
            try:
                made.append(control.run_schedule(name, database=alias()))
            except (InvalidSchedule, DuplicateMessage) as error:
                self.message_user(
                    request, gettext("Schedule {name}: {error}").format(name=name, error=error), messages.ERROR
                )
            else:
                audit_log.written(request, Schedule, [name], gettext("Run now: message {id}.").format(id=made[-1]))
        if again := [name for name in chosen if name in done_before]:
            self.message_user(request, actions.not_twice(actions.first_names(again)), messages.WARNING)
        links = format_html_join(", ", "{}", ((link("message_change", str(pk), pk),) for pk in made))
        if made:
            self.message_user(
                request,
                format_html(gettext("Enqueued {messages}: {ids}."), messages=actions.count(made), ids=links),
                messages.SUCCESS,
            )

    def _each(
        self,
        request: HttpRequest,
        queryset: QuerySet[Schedule],
        act: Callable[..., bool],
        what: str,
        otherwise: str,
    ) -> None:
        done: list[str] = []
        passed: list[str] = []
        for name in self._chosen(request, queryset):
            try:
                (done if act(name, database=alias()) else passed).append(name)
            except InvalidSchedule as error:
                self.message_user(
                    request, gettext("Schedule {name}: {error}").format(name=name, error=error), messages.ERROR
                )
        if done:
            audit_log.written(request, Schedule, done, f"{what[0].upper()}{what[1:]}.")
            self.message_user(request, f"{counted(done)} {what}.", messages.SUCCESS)
        if passed:
            self.message_user(
                request,
                gettext("Not changed: {reasons}.").format(reasons=f"{counted(passed)}, {otherwise}"),
                messages.WARNING,
            )

    def _chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> Iterable[str]:
        names = list(queryset.order_by("name").values_list("name", flat=True)[: actions.MOST])
        return [] if self.are_gone(request, names) else names


def counted(names: list[str]) -> str:
    shown = ", ".join(names[: actions.NAMED])
    words = ngettext("{count} schedule", "{count} schedules", len(names)).format(count=len(names))
    return f"{words} ({shown}{', …' if len(names) > actions.NAMED else ''})"
