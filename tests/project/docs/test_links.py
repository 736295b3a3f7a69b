"""Links and names of pages have their targets: files, tests, headings, and paths of this repository."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import FENCE, FOLDER, PAGES, ROOT, SIGNPOSTS, name_of

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\[([^\]]*)\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$")
ANCHOR = re.compile(r'<a id="([^"]+)">')
NAMED = re.compile(r"`((?:django_pgqueue|docs|example_project|sql|tests)/[\w/.-]*\w)`")
OF_A_RELEASE = "sql/released/"
"""A folder that the first release makes."""
DECISIONS = FOLDER / "about" / "decisions"
NUMBERED = sorted(DECISIONS.glob("0*.md"))

each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@each_page
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    for words, target, anchor in LINK.findall(page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), f"{name_of(page)} links to {target}"
        if words.startswith("`test_"):
            assert f"def {words.strip('`')}(" in found.read_text(), f"{target} has no {words}"
        if anchor:
            assert anchor in anchors(found), f"{name_of(page)} links to #{anchor}, which {target or 'it'} has not"


@each_page
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    paths = [path for path in NAMED.findall(page.read_text()) if not path.startswith(OF_A_RELEASE)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", SIGNPOSTS, ids=name_of)
def test_a_file_at_the_top_is_short_and_leads_into_the_pages(path: Path) -> None:
    """The content has one place: a change of it is written once."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 20
    assert [target for _, target, _ in LINK.findall("\n".join(lines)) if target.startswith("docs/pages/")]


def test_the_walk_of_a_message_names_files_of_the_package() -> None:
    text = (FOLDER / "contributing" / "map.md").read_text()
    _, _, walk = text.partition("\n## The walk of a message\n")
    paths = re.findall(r"`([\w/]+\.py)`", walk.partition("\n## ")[0])
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / "django_pgqueue" / path).exists()] == []


def test_the_index_of_decisions_has_each_one_with_its_status() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (.+) \|$", (DECISIONS / "index.md").read_text(), re.MULTILINE)
    assert [(int(number), name) for number, _, name, _ in rows] == [
        (number, path.name) for number, path in enumerate(NUMBERED, start=1)
    ]
    for number, title, name, status in rows:
        assert name.startswith(f"{int(number):04}-")
        assert (DECISIONS / name).read_text().startswith(f"# {title}\n\n**Status.** {status}"), name


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)
def test_a_decision_has_its_four_parts(path: Path) -> None:
    parts = re.findall(r"^\*\*(\w+)\.\*\* ", path.read_text(), re.MULTILINE)
    assert parts == ["Status", "Context", "Decision", "Consequence"]


@cache
def anchors(path: Path) -> set[str]:
    """Returns what can be linked to on a page: its headings, as the site and GitHub name them, and marks by hand."""
    found: set[str] = set()
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        inside ^= line.startswith(FENCE)
        if (heading := HEADING.match(line)) and not inside:
            found.add(slug(heading[1]))
        found.update(ANCHOR.findall(line))
    return found


def slug(heading: str) -> str:
    """Returns a heading's anchor, as Python-Markdown makes it."""
    text = unicodedata.normalize("NFKD", heading.replace("`", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
