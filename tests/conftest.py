"""What every test may need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emptying import emptied_quickly

__all__ = ["emptied_quickly"]

HERE = Path(__file__).parent
OF_DJANGO = {"test_migrations.py", "test_install.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by which continuous integration shares the tests out.  What asks PostgreSQL alone is the same on every
    Python, and is done once.
    """
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in {"sql", "models"} and item.path.name not in OF_DJANGO:
            item.add_marker(pytest.mark.sql)
        elif folder == "worker":
            item.add_marker(pytest.mark.worker)
