"""Django's own commands write the tables of the queue as fixtures, and load them again."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models

from django_pgqueue.conf import APP_LABEL

if TYPE_CHECKING:
    from pathlib import Path

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
WORDS: dict[str, dict[str, Any]] = {
    "Attempt": {"status": "succeeded"},
    "Step": {"kind": "step", "status": "done", "started_at": NOON},
    "Edit": {"action": "cancel", "filter": {}, "parameters": {}},
    "Schedule": {"catch_up": "one", "timezone": "UTC", "cron": "* * * * *", "content": {"args": [], "kwargs": {}}},
    "Binding": {"kind": "topic"},
    "Message": {"after_ids": [1], "after_policy": "finished", "checks": 0, "check_at": NOON},
    "Worker": {"queues": ["a,b", "{"], "exclude_queues": [], "asleep_until": NOON},
    "Rollup": {"minutes": 60, "wait_histogram": {"7": 1}, "run_histogram": {}},
}


def concrete() -> list[type[models.Model]]:
    return [model for model in apps.get_app_config(APP_LABEL).get_models() if not model._meta.proxy]


def value_of(field: models.Field[Any, Any]) -> Any:
    if field.has_default():
        return field.get_default()
    for kind, value in (
        (models.BooleanField, False),
        (models.DateTimeField, NOON),
        (models.TextField, "x"),
        (models.JSONField, {}),
    ):
        if isinstance(field, kind):
            return value
    return NOON if type(field).__name__ == "EpochField" else [] if type(field).__name__ == "NamesField" else 1


def a_row_of(model: type[models.Model]) -> None:
    values = {
        field.attname: value_of(field)
        for field in model._meta.concrete_fields
        if not field.null and not isinstance(field, models.GeneratedField)
    }
    model(**{**values, **WORDS.get(model.__name__, {})}).save_base(raw=True, force_insert=True)


def rows(model: type[models.Model]) -> list[dict[str, Any]]:
    return list(model._base_manager.order_by("pk").values())


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["json", "xml"])
def test_loaddata_brings_back_what_dumpdata_has_written(form: str, tmp_path: Path) -> None:
    for model in concrete():
        a_row_of(model)
    before = {model.__name__: rows(model) for model in concrete()}
    assert all(before.values())
    file = tmp_path / f"queue.{form}"
    call_command("dumpdata", APP_LABEL, format=form, output=str(file), verbosity=0)
    with connection.cursor() as cursor:
        for model in concrete():
            cursor.execute(f'delete from "{model._meta.db_table}"')
    call_command("loaddata", str(file), verbosity=0)
    assert {model.__name__: rows(model) for model in concrete()} == before
