"""A lake, and the database where ``manage.py qpipeline`` would say that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.management.commands.qpipeline import VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def options(url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv(VARIABLE, url)
    return {"urlVariable": VARIABLE}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
