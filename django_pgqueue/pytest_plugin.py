"""Fixtures for projects that test with pytest and pytest-django.  Registered by itself, through an entry point.

pytest imports this module in every project of the environment: nothing of Django is imported before a test asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from django_pgqueue.testing import Clock
    from django_pgqueue.testing.inline import Inline

WITHOUT_DATABASE = (
    "The fixtures of django_pgqueue need the database fixtures of pytest-django: python -m pip install pytest-django."
)


@pytest.fixture
def pgqueue(request: pytest.FixtureRequest) -> ModuleType:
    """What a test does with the queue: ``pgqueue.drain()`` and all else of ``django_pgqueue.testing``."""
    if not request.config.pluginmanager.hasplugin("django"):
        pytest.fail(WITHOUT_DATABASE, pytrace=False)
    request.getfixturevalue("db")
    from django_pgqueue import testing  # noqa: PLC0415 -- imports models

    return testing


@pytest.fixture
def pgqueue_clock(pgqueue: ModuleType) -> Iterator[Clock]:
    """The queue's clock, which stands still until the test moves it."""
    with pgqueue.clock() as clock:
        yield clock


@pytest.fixture
def pgqueue_inline(pgqueue: ModuleType) -> Iterator[Inline]:
    """Jobs run where they are enqueued."""
    with pgqueue.inline() as inline:
        yield inline
