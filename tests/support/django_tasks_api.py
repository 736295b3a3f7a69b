"""Django's tasks API by its public names, as a project writes them: the tests must not take it from our compat."""

from __future__ import annotations

from typing import Any

import django
from django.utils.module_loading import import_string

PACKAGE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
DUMMY, IMMEDIATE = f"{PACKAGE}.backends.dummy.DummyBackend", f"{PACKAGE}.backends.immediate.ImmediateBackend"

django_task: Any = import_string(f"{PACKAGE}.task")
default_task_backend: Any = import_string(f"{PACKAGE}.default_task_backend")
