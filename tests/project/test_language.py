"""The language of the package: what docs/pages/contributing/style.md says of words, where a program can see it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = sorted((ROOT / "django_pgqueue").rglob("*.py"))
SQL = [path for path in sorted((ROOT / "sql").rglob("*.sql")) if "released" not in path.parts]
PAGES = sorted((ROOT / "docs" / "pages").rglob("*.md"))
STYLE = ROOT / "docs" / "pages" / "contributing" / "style.md"
"""It shows what not to write."""
OF_DJANGO = {"Command", "Media", "Meta", "Migration"}
TWO_ON_PURPOSE = {"Exchange", "Overview"}
"""Each is the model of the admin, and what a project or a page calls by that name."""


def docstrings(path: Path) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


@pytest.mark.parametrize(
    ("words", "instead"),
    [(r"\b[Cc]an not\b", "cannot"), (r"(^|[\s#\"])Answers (the|a|an|what|whether|that|how|if|with)\b", "Returns")],
)
def test_words_with_an_alternative_are_not_used(words: str, instead: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0].strip()!r}, write {instead!r}"
        for path in [*PACKAGE, *SQL, *PAGES]
        if path != STYLE
        for match in re.finditer(words, path.read_text())
    ]
    assert not found, "\n".join(found)


def test_a_sentence_of_a_page_names_its_actor() -> None:
    """What made readers stumble: "only for who holds it", "Who waits asks", "fairness by appointment"."""
    stumbles = re.compile(r"\b(?:[Oo]nly|for|as|than) who\b|\bWho waits\b|by appointment")
    reference = ROOT / "docs" / "pages" / "reference"
    read = [page for page in PAGES if page not in (STYLE, reference / "sql.md", reference / "tables.md")]
    pages = [page for page in read if not {"decisions", "performance-log.md"} & set(page.parts)]
    found = [f"{page.name}: {match[0]}" for page in pages for match in stumbles.finditer(page.read_text())]
    assert not found, "\n".join(found)


def test_a_docstring_stands_alone() -> None:
    """It has a verb or a noun for its beginning: no word that leans on the line above."""
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in PACKAGE
        for text in docstrings(path)
        if re.match(r"(Of|Those|That|Who|What) ", text)
    ]
    assert not found, "\n".join(found)


def test_limits_are_called_max_and_min() -> None:
    names = re.compile(r"^((?:MOST|LONGEST|SHORTEST|LARGEST|SMALLEST|LOWEST|HIGHEST)_\w+)", re.MULTILINE)
    found = [f"{path.relative_to(ROOT)}: {name}" for path in PACKAGE for name in names.findall(path.read_text())]
    assert not found, "\n".join(found)


def test_a_name_of_a_class_stands_for_one_class() -> None:
    classes = [
        node.name for path in PACKAGE for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    twice = {name for name, count in Counter(classes).items() if count > 1}
    assert twice - OF_DJANGO == TWO_ON_PURPOSE
