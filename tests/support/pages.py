"""The pages of the documentation and the code blocks in them.

A block is run by a test as it stands.  Two HTML comments, which readers of the built pages do not see, say more::

    <!-- not run: it would restart the machine -->     before a block: the reason why it is only read
    <!-- check                                         Python that is run here and not shown: what a page claims
    assert drain()[0].status == "SUCCESSFUL"
    -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pages"
SIGNPOSTS = [ROOT / f"{name}.md" for name in ("AGENTS", "CHANGELOG", "CONTRIBUTING", "SECURITY", "UPGRADING")]
"""Short files at the top, where readers and hosts look first.  They point into the pages, which have the content."""
PAGES = [ROOT / "README.md", *SIGNPOSTS, *sorted(FOLDER.rglob("*.md"))]

FENCE, NOT_RUN, CHECK, CHECK_ENDS = "```", "<!-- not run: ", "<!-- check", "-->"
RUN = {"python", "sql", "sh", "javascript", "go"}
READ = {"text", "ini", "dockerfile", "yaml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: Path
    line: int
    """Number of the first line of the text."""
    language: str
    text: str
    not_run: str | None = None

    @property
    def module(self) -> str | None:
        """``"shop.tasks"`` when the first line is ``# shop/tasks.py``: the block stands in that file."""
        found = re.match(r"# ([\w/]+)\.py\n", self.text)
        return found[1].replace("/", ".") if found and self.language == "python" else None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page that are run, in their order; all of them when no language is given."""
    found = list(_blocks(page))
    return [block for block in found if block.language in languages and not block.not_run] if languages else found


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name_of(page: Path) -> str:
    """``"guide/tasks"``; ``"README"``."""
    return page.relative_to(FOLDER if page.is_relative_to(FOLDER) else ROOT).with_suffix("").as_posix()


def _blocks(page: Path) -> Iterator[Block]:
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    before = ""
    for number, line in lines:
        if line.startswith((FENCE, CHECK)):
            end = FENCE if line.startswith(FENCE) else CHECK_ENDS
            text = "".join(f"{inside}\n" for inside in _until(end, lines))
            language = line.removeprefix(FENCE) if end == FENCE else "python"
            not_run = before.removeprefix(NOT_RUN).removesuffix(" -->") if before.startswith(NOT_RUN) else None
            yield Block(page=page, line=number + 1, language=language, text=text, not_run=not_run)
            before = ""
        elif line.strip():
            before = line


def _until(end: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line == end:
            return
        yield line


def text_of(page: str) -> str:
    [path] = FOLDER.rglob(f"{page}.md")
    return path.read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """Return the text under a heading of the second level."""
    return text_of(page).partition(f"\n## {title}\n")[2].partition("\n## ")[0]
