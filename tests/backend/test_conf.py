"""The options of a backend."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import task_backends
from django_pgqueue.conf import Options

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

OURS = "django_pgqueue.backend.PgQueueBackend"


def test_keys_are_upper_case() -> None:
    assert Options.names() == [field.name.upper() for field in dataclasses.fields(Options)]
    assert Options.of({"LOCK_SECONDS": 5, "lock_seconds": 7}).lock_seconds == 5


def test_unknown_keys_and_options_that_are_no_dictionary_are_ignored() -> None:
    assert Options.of({"UNKNOWN": 1, 5: 6, None: 0}) == Options()
    assert Options.of(None) == Options.of(["LISTEN"]) == Options()


@pytest.mark.parametrize(("seconds", "ms"), [(1, 1000), (0.5, 500), (0.0015, 1), (0.0001, 1), (60, 60_000)])
def test_lock_ms_is_lock_seconds_in_milliseconds(seconds: float, ms: int) -> None:
    assert Options(lock_seconds=seconds).lock_ms == ms


def test_each_alias_has_its_own(settings: Settings) -> None:
    settings.TASKS = {
        "default": {"BACKEND": OURS},
        "slow": {"BACKEND": OURS, "OPTIONS": {"LOCK_SECONDS": 3600, "MAX_ATTEMPTS": 3}},
    }
    default, slow = task_backends["default"], task_backends["slow"]
    assert isinstance(default, PgQueueBackend)
    assert isinstance(slow, PgQueueBackend)
    assert (default.settings.lock_ms, slow.settings.lock_ms) == (60_000, 3_600_000)
    assert (default.settings.max_attempts, slow.settings.max_attempts) == (None, 3)


def test_settings_that_change_are_followed(settings: Settings) -> None:
    for max_attempts in (2, 7):
        settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": {"MAX_ATTEMPTS": max_attempts}}}
        backend = task_backends["default"]
        assert isinstance(backend, PgQueueBackend)
        assert backend.settings.max_attempts == max_attempts
