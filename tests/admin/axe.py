"""axe-core, which knows what people with disabilities trip over: fetched with npm, run inside of the page."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures import browser

VERSION = "4.10.3"
FAULTS = {"moderate", "serious", "critical"}
# A colour on its way to another one is neither.
STILL = """
    const still = new CSSStyleSheet();
    still.replaceSync("* { transition: none !important }");
    document.adoptedStyleSheets = [still];
"""
# Django's own breadcrumbs have links without an underline; they are not ours to change.
THE_PAGE = {"exclude": [".breadcrumbs"]}


def source(folder: Path) -> str:
    """The text of axe-core."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, to fetch axe-core (Debian: apt install npm)")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(folder), f"axe-core@{VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=folder)
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core@{VERSION} here: {done.stderr.strip()[-300:]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def faults(page: browser.Page, axe: str, *rules: str) -> list[str]:
    """The faults of the page, but for minor ones: the rule, its text, and the place.  ``rules``: only these."""
    if not page.driver.execute_script("return 'axe' in window"):
        page.driver.execute_script(STILL + axe)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    script = "axe.run(arguments[0], arguments[1]).then(arguments[2])"
    found: Any = page.driver.execute_async_script(script, THE_PAGE, options)
    return [
        f"{fault['id']}: {fault['help']}: {node['html']} {node['any'][:1]}"
        for fault in found["violations"]
        if fault["impact"] in FAULTS
        for node in fault["nodes"]
    ]
