"""Fixtures for projects that test with pytest and pytest-django.  An entry point registers them.

pytest imports this module in every project of the environment, so it imports Django only when a test uses a fixture.
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
    """The module ``django_pgqueue.testing``, for example ``pgqueue.drain()``."""
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
    """Runs each job inside of its ``enqueue``."""
    with pgqueue.inline() as inline:
        yield inline
