"""Puts what explains before what lists: a hook of ProperDocs (or MkDocs 1) that weighs the results of a search.

A heading counts more than a text, and a page that one reads to learn something more than those that one looks things up
in.  The search's own script has no option for either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LOOKED_UP = r"/^(about|contributing|data|reference\/api)/"
WEIGHTS = {
    "this.field('title');": "this.field('title', {boost: 3});",
    "this.add(doc);": f"this.add(doc, {{boost: {LOOKED_UP}.test(doc.location) ? 0.5 : 1}});",
}


def on_post_build(config: Any, **_: Any) -> None:
    script = Path(config["site_dir"], "search", "worker.js")
    text = script.read_text(encoding="utf-8")
    for line, weighed in WEIGHTS.items():
        if line not in text:
            raise ValueError(f"The script of the search has changed: it has no line {line}")
        text = text.replace(line, weighed)
    script.write_text(text, encoding="utf-8")
