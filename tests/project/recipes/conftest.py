"""A project in a folder of its own that has a recipe in it, word for word, and workers of it."""

from __future__ import annotations

import os
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import django
import pytest

from tests.support.fixtures.workers import diary, environment, rows, session, start
from tests.support.pages import FOLDER, ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["diary", "environment", "rows", "session", "start"]

DEPLOY = ROOT / "docs" / "deploy"
RECIPES = FOLDER / "operate" / "recipes.md"
WSGI = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"shop"]
"""


def recipe(first_line: str, words: str, page: Path = RECIPES) -> str:
    """The block of the page that begins with this line and has these words in it."""
    [text] = [
        block.text for block in blocks(page) if block.text.startswith(f"# {first_line}\n") and words in block.text
    ]
    return text if django.VERSION >= (6, 0) else text.replace("from django.tasks.", "from django_tasks.")


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Writes modules, and returns the variables for a process that finds them.  ``settings`` follows the tests' own."""

    def make(settings: str = "", **modules: str) -> dict[str, Any]:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "recipe_settings.py").write_text(f"from tests.support.site.settings import *\n\n{settings}")
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        imported = " ".join(["tests.project.recipes.failing", *(name for name in modules if name != "urls")])
        return {
            "DJANGO_SETTINGS_MODULE": "recipe_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "PGQUEUE_TEST_IMPORTS": imported,
        }

    return make


def deploy_file(name: str, folder: Path, gunicorn: dict[str, str]) -> str:
    """A file of docs/deploy as it is, but for this test's Python and modules, and its own options of gunicorn."""
    (folder / "shop_wsgi.py").write_text(WSGI)
    text = (DEPLOY / name).read_text()
    commands = {
        **{told: f"{sys.executable} -m {here}" for told, here in gunicorn.items()},
        "shop.wsgi": "shop_wsgi",
        "python manage.py": f"{sys.executable} -m tests.support.site.manage",
    }
    for told, here in commands.items():
        assert told in text
        text = text.replace(told, here)
    return text


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return bool(answer.read() == b"shop")
    except OSError:
        return False
