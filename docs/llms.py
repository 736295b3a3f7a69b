"""Writes llms.txt, a list of all pages with their first sentences, and each page as Markdown beside the built one.

A hook of ProperDocs (or MkDocs 1), for people who work with assistants: https://llmstxt.org.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def on_post_build(config: Any, **_: Any) -> None:
    site, source = Path(config["site_dir"]), Path(config["docs_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for entry in config["nav"]:
        [(title, found)] = entry.items()
        lines += ["", f"## {title}", ""]
        for name, path in pages(title, found):
            sentence = first_sentence((source / path).read_text(encoding="utf-8"))
            lines.append(f"- [{name}]({path}): {sentence}" if sentence else f"- [{name}]({path})")
            shutil.copy(source / path, site / path)
    (site / "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def pages(title: str, found: Any) -> Iterator[tuple[str, str]]:
    if isinstance(found, str):
        yield title, found
        return
    for entry in found:
        [(name, path)] = entry.items()
        yield name, path


def first_sentence(text: str) -> str:
    """Returns the first sentence of the first paragraph, without links."""
    found = re.search(r"^(?:[A-Z*]|`(?!`))[^\n]*(?:\n[^\n#<`|]+)*", text.partition("\n")[2], re.MULTILINE)
    paragraph = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(found[0].split())) if found else ""
    return re.split(r"(?<=[.:])\s", paragraph)[0]
