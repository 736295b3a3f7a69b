"""Writes the SQL into docs/pages/reference/sql.md: the signature of each function and the documentation in its body.

    python -m tests.project.docs.sql_reference

The page has a place for each file of sql/, between ``<!-- sql: NAME -->`` and ``<!-- end -->``; what stands between
them is replaced, and all else on the page is written by hand.  A test runs this and finds nothing to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.functions import sql_files
from tests.support.pages import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = FOLDER / "reference" / "sql.md"
CREATE, BODY, PLACE, END = "create or replace function ", "as $$", "<!-- sql: ", "<!-- end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function as its file in sql/ has it."""

    name: str
    signature: str
    documentation: str

    def __str__(self) -> str:
        return f"<!-- not run: a signature -->\n```sql\n{self.signature}\n```\n\n{self.documentation}\n"


def functions(path: Path) -> Iterator[Function]:
    """The functions of a file: more than one where there is a form for one message and a form for many."""
    for text in path.read_text(encoding="utf-8").split(CREATE)[1:]:
        head, _, body = text.partition(BODY)
        lines = head.splitlines()
        # The signature ends where the attributes begin.
        end = next(number for number, line in enumerate(lines) if line.startswith("language "))
        yield Function(
            name=text.partition("(")[0],
            signature="\n".join(lines[:end]),
            documentation=markdown(comment_lines(body.splitlines()[1:])),
        )


def comment_lines(lines: list[str]) -> Iterator[str]:
    """The comment with which a body opens, without its dashes."""
    for line in lines:
        if not line.strip().startswith("--"):
            return
        yield line.strip().removeprefix("--").removeprefix(" ")


def markdown(lines: Iterator[str]) -> str:
    """Paragraphs as they are; what is indented (lists of parameters, examples) as a block."""
    written: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("  ") != inside and line:
            written.append("```\n" if inside else "\n```text")
            inside = not inside
        written.append(line.removeprefix("  ") if inside else line.replace("  ", " ").replace("*", r"\*"))
    return "\n".join([*written, "```"] if inside else written).strip()


def written(page: str) -> str:
    """The page with everything in its places."""
    parts = page.split(PLACE)
    for number, part in enumerate(parts[1:], start=1):
        name, _, rest = part.partition(" -->\n")
        _, _, after = rest.partition(END)
        content = "\n".join(str(function) for function in functions(sql_files.path(name)))
        parts[number] = f"{name} -->\n{content}{END}{after}"
    return PLACE.join(parts)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
