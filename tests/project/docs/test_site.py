"""The built pages: made without warnings, and complete on a machine without a network."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path


class Assets(HTMLParser):
    """The addresses that a browser loads by itself with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loaded = given.get("src") or (given.get("href") if tag == "link" else None)
        if loaded and given.get("rel") != "canonical":
            self.found.add(loaded)


def test_a_page_loads_nothing_from_elsewhere_and_everything_is_there(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert site / "index.html" in pages
    for page in pages:
        assets = Assets()
        assets.feed(page.read_text(encoding="utf-8"))
        for address in assets.found:
            parts = urlsplit(address)
            assert not parts.netloc, f"{page.name} loads {address}"
            # The page for addresses that are not there is served anywhere: its own addresses begin at the root.
            found = site / parts.path.lstrip("/") if parts.path.startswith("/") else page.parent / parts.path
            assert found.exists(), f"{page.name} loads {address}, which is not there"


def test_no_style_sheet_loads_from_elsewhere(site: Path) -> None:
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "@import" not in text
        assert "url(http" not in text.replace("'", "").replace('"', ""), style


def test_an_old_address_leads_to_its_page(site: Path) -> None:
    redirects: dict[str, str] = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text())["extra"]["redirects"]
    assert "tasks.html" in redirects
    for old, new in redirects.items():
        address, _, fragment = new.partition("#")
        assert (site / address).is_file(), f"{old} leads to {new}"
        assert f'id="{fragment}"' in (site / address).read_text() or not fragment, f"{old} leads to {new}"
        page = (site / old.partition("#")[0]).read_text()
        assert f'"{new}"' in page, f"{old} does not lead to {new}"


def test_assistants_find_each_page_as_markdown(site: Path) -> None:
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    pages = [line.partition("](")[2].partition(")")[0] for line in lines if line.startswith("- ")]
    numbered = {path.name for path in (ROOT / "docs/pages/about/decisions").glob("0*.md")}
    there = {path.relative_to(ROOT / "docs/pages").as_posix() for path in (ROOT / "docs/pages").rglob("*.md")}
    assert sorted(pages) == sorted(path for path in there if path.rpartition("/")[2] not in numbered)
    assert [page for page in pages if not (site / page).is_file()] == []
