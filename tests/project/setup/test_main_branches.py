"""The README runs on the main branches of Django, django-tasks and psycopg: what their next release will bring.

PGQUEUE_MAIN_BRANCHES=1 runs this, with archives from the network.  It may name a folder instead, which has checkouts
with the names in BRANCHES.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from django_pgqueue.distribution import DISTRIBUTION
from example_project.development.environment import Environment
from tests.project.setup.installations import Installation, NotInstalled, build_wheel, write_wheel
from tests.support.databases import empty_database

WANTED = os.environ.get("PGQUEUE_MAIN_BRANCHES", "")
BRANCHES = {
    "django": ("https://github.com/django/django/archive/HEAD.tar.gz", ""),
    "django-tasks": ("https://github.com/RealOrangeOne/django-tasks/archive/HEAD.tar.gz", "django52"),
    "psycopg": ("https://github.com/psycopg/psycopg/archive/HEAD.tar.gz#subdirectory=psycopg", ""),
}
"""Where a main branch is, and the extra of ours that brings in what it belongs to."""

NEEDS_ANOTHER_PYTHON = re.compile(".*(requires a different Python|does not satisfy Python|Requires-Python).*")

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(1800)]


def source(name: str) -> str:
    """Return the argument of an installer; the test is skipped where that cannot be had."""
    address, _ = BRANCHES[name]
    if WANTED != "1":
        folder = Path(WANTED) / name
        inside = folder / "psycopg" if name == "psycopg" else folder
        if not inside.is_dir():
            pytest.skip(f"there is no checkout of {name} in {WANTED}")
        return f"{name} @ {inside.absolute().as_uri()}"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=30):  # noqa: S310
            return f"{name} @ {address}"
    except (urllib.error.URLError, TimeoutError) as error:
        pytest.skip(f"the main branch of {name} cannot be reached at {address}: {error}")


def install(installation: Installation, branch: str) -> None:
    """Without its dependencies, so that what the released versions brought along is still there.  The test is skipped
    where the branch needs a newer Python than this one.
    """
    try:
        installation.install("--no-deps", "--force-reinstall", branch)
    except NotInstalled as error:
        if (reason := NEEDS_ANOTHER_PYTHON.search(str(error))) is None:
            raise
        pytest.skip(f"run this with a newer Python: {reason[0].strip()}")


def test_a_branch_that_needs_a_newer_python_is_skipped_with_the_reason(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.folder.mkdir()
    environment.create()
    installation = Installation(environment=environment, project=tmp_path)
    metadata = "Metadata-Version: 2.1\nName: future\nVersion: 1\nRequires-Python: >=99\n"
    wheel = write_wheel(tmp_path / "future-1-py3-none-any.whl", metadata, {})
    with pytest.raises(pytest.skip.Exception, match=r"newer Python: .*99"):
        install(installation, str(wheel))
    with pytest.raises(NotInstalled):
        install(installation, str(tmp_path / "missing-1-py3-none-any.whl"))


@pytest.mark.skipif(not WANTED, reason="started by hand: PGQUEUE_MAIN_BRANCHES=1")
@pytest.mark.parametrize("name", BRANCHES)
def test_the_readme_runs_on_a_main_branch(name: str, tmp_path: Path, conninfo: str) -> None:
    branch = source(name)
    installation = Installation.made(tmp_path)
    _, extra = BRANCHES[name]
    ours = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
    shelf = build_wheel(tmp_path / "shelf")
    installation.install("--find-links", str(shelf), ours, "psycopg[binary]")
    install(installation, branch)
    with empty_database(conninfo, "branch") as database:
        installation.write_readmes_project(database)
        installation.follow_readme(database)
