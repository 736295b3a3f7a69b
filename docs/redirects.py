"""Makes a page for each address that a page had before, which leads to its new one: a hook of ProperDocs (or MkDocs 1).

The addresses stand in mkdocs.yml, ``extra.redirects``.  An address with a fragment is for one part of a page; all other
fragments are kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Moved</title>
<link rel="canonical" href="{to}">
<meta http-equiv="refresh" content="1; url={to}">
<script>
const parts = {parts};
location.replace(parts[location.hash] || {to_text} + location.hash);
</script>
<p>This page has moved: <a href="{to}">{to}</a>.</p>
</html>
"""


def on_post_build(config: Any, **_: Any) -> None:
    redirects: dict[str, str] = config["extra"]["redirects"]
    for old, to in redirects.items():
        if "#" not in old:
            page = Path(config["site_dir"], old)
            page.write_text(PAGE.format(to=to, to_text=json.dumps(to), parts=json.dumps(parts(old, redirects))))


def parts(old: str, redirects: dict[str, str]) -> dict[str, str]:
    """The new address of each part of a page that has one of its own."""
    return {address.removeprefix(old): to for address, to in redirects.items() if address.startswith(f"{old}#")}
