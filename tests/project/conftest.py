from __future__ import annotations

from typing import TYPE_CHECKING

import django
import pytest
from django.test import override_settings

from tests.support.fixtures.sessions import conninfo, test_database

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["conninfo", "test_database"]


@pytest.fixture(autouse=True)
def mailers() -> Iterator[None]:
    """Django 6.1 warns, which is an error here, when something is mailed by the default of the time before MAILERS."""
    if django.VERSION < (6, 1):
        yield
        return
    with override_settings(MAILERS={"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}):
        yield
