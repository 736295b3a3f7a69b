"""A release is made by one command, which refuses where something does not agree, and a workflow publishes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from django_pgqueue.functions import sql_files
from tests.project.setup.installations import Installation, write_wheel
from tests.support import release
from tests.support.pages import ROOT
from tests.support.released_sql import ship

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.once

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
COMING = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
DATED = "# Changelog\n\n## 0.1.0 (2026-12-01)\n\nThe first version.\n"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A made-up repository with what the checks read."""

    root: Path

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "all")

    def problems(self, version: str = "0.1.0", *, tag: bool = True) -> list[str]:
        return list(release.problems(version, root=self.root, tag=tag))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout that is ready for its release."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    made = Checkout(tmp_path / "checkout")
    made.write("pyproject.toml", '[project]\nname = "small"\nversion = "0.1.0"\n')
    made.write("docs/pages/about/changelog.md", DATED)
    shutil.copytree(sql_files.folder(), made.root / "sql", ignore=shutil.ignore_patterns("released"))
    monkeypatch.setattr(sql_files, "folder", lambda: made.root / "sql")
    ship("0.1.0")
    made.git("init", "--quiet")
    made.commit()
    return made


def test_a_consistent_checkout_has_no_problems(checkout: Checkout) -> None:
    assert checkout.problems() == []


@pytest.mark.parametrize("version", ["v0.1.0", "0.1", "0.1.0rc1", ""])
def test_a_version_has_three_numbers(checkout: Checkout, version: str) -> None:
    [found] = checkout.problems(version)
    assert "is no version" in found


def test_the_version_of_the_project_must_agree(checkout: Checkout) -> None:
    checkout.write("pyproject.toml", '[project]\nname = "small"\nversion = "0.0.9"\n')
    checkout.commit()
    assert checkout.problems() == ["pyproject.toml has the version 0.0.9: write 0.1.0 there."]


@pytest.mark.parametrize("heading", ["0.1.0 (not yet released)", "0.2.0 (2026-12-01)", "0.1.0"])
def test_the_changelog_must_begin_with_the_version_and_its_day(checkout: Checkout, heading: str) -> None:
    checkout.write("docs/pages/about/changelog.md", DATED.replace("0.1.0 (2026-12-01)", heading))
    checkout.commit()
    [found] = checkout.problems()
    assert f"begins with {heading!r}: write '0.1.0 (" in found


def test_the_texts_of_the_release_must_be_listed(checkout: Checkout) -> None:
    (checkout.root / "sql" / "released" / "0.1.0.txt").unlink()
    checkout.commit()
    [found] = checkout.problems()
    assert found.endswith("Run: python -m tests.support.released_sql 0.1.0")


def test_the_listed_texts_must_be_those_in_force(checkout: Checkout) -> None:
    checkout.write("sql/uninstall.sql", "select 1;\n")
    checkout.commit()
    [found] = checkout.problems()
    assert "lists other texts than sql/ has" in found


def test_everything_must_be_committed(checkout: Checkout) -> None:
    checkout.write("forgotten.py", "")
    [found] = checkout.problems()
    assert "1 files are not committed" in found


def test_a_tag_is_never_made_twice(checkout: Checkout) -> None:
    checkout.git("tag", "0.1.0")
    [found] = checkout.problems()
    assert "The tag 0.1.0 exists" in found
    assert checkout.problems(tag=False) == [], "the workflow runs because of it"


def test_files_of_another_build_are_not_published(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "old.whl").touch()
    with pytest.raises(release.NotReady, match="is not empty"):
        release.release("0.1.0", folder=tmp_path / "dist", tag=False, root=checkout.root)


ABOUT = "Metadata-Version: 2.1\nName: small\nVersion: 0.1.0\nDescription-Content-Type: text/plain\n\nText.\n"
BUILT = {
    "twine": ("Metadata-Version: 2.1\nName: small\n", "small.py"),
    "check-wheel-contents": (ABOUT, "a.pyc"),
}
"""By the tool that has to refuse it: the metadata of a wheel, and the file in it."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the tools of a release.  Skips the test where no index can be reached."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(release.tools(ROOT))
        except release.NotReady:
            Installation.made(tmp_path_factory.mktemp("index"))
            raise
        yield folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_build_that_one_of_the_tools_refuses_is_not_tagged(
    checkout: Checkout, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "tools", lambda _: nullcontext(programs))
    for tool, (metadata, name) in BUILT.items():
        wheel = write_wheel(tmp_path / tool / "small-0.1.0-py3-none-any.whl", metadata, {name: ""})
        monkeypatch.setattr(release, "build", lambda *_, wheel=wheel: [wheel])
        with pytest.raises(release.NotReady, match=f"bin/{tool} "):
            release.release("0.1.0", folder=tmp_path / "dist", tag=True, root=checkout.root)
    assert checkout.git("tag") == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_builds_checks_and_tags(programs: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    checkout = Checkout(tmp_path / "checkout")
    kept = shutil.ignore_patterns("__pycache__", "output", ".venv*", ".git", ".*_cache", ".hypothesis", "site", "dist")
    shutil.copytree(ROOT, checkout.root, ignore=kept)
    page = "docs/pages/about/changelog.md"
    text, dated = re.subn(
        rf"^## {re.escape(COMING)} .*$",
        f"## {COMING} (2026-12-01)",
        (checkout.root / page).read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert dated == 1, f"the changelog has no heading for {COMING}"
    checkout.write(page, text)
    checkout.git("init", "--quiet")
    for name in ("user.name", "user.email"):
        checkout.git("config", name, "test@example.com")
    listed = f"sql/released/{COMING}.txt"
    if not (checkout.root / listed).exists():
        command(checkout, "-m", "tests.support.released_sql")
    checkout.commit()
    with_the_tools = WITH_THE_TOOLS.format(str(programs))
    assert f"To publish it: git push origin {COMING}" in command(checkout, "-c", with_the_tools)
    assert checkout.git("tag").split() == [COMING]
    built = sorted(path.name for path in (checkout.root / "dist").iterdir())
    assert built == [f"django_tasks_pgqueue-{COMING}-py3-none-any.whl", f"django_tasks_pgqueue-{COMING}.tar.gz"]
    with tarfile.open(checkout.root / "dist" / built[1]) as sdist:
        assert f"django_tasks_pgqueue-{COMING}/{listed}" in sdist.getnames()
    with zipfile.ZipFile(checkout.root / "dist" / built[0]) as wheel:
        assert {f"django_pgqueue/{listed}", "django_pgqueue/sql/upgrade.sql"} <= set(wheel.namelist())


WITH_THE_TOOLS = """
from contextlib import nullcontext
from pathlib import Path
from tests.support import release

release.tools = lambda _: nullcontext(Path({!r}))
release.main()
"""
"""``-m tests.support.release``, without another environment for its tools."""


def command(checkout: Checkout, *words: str) -> str:
    """Return the output of a command of the checkout, with the checkout's own code."""
    done = subprocess.run(
        [sys.executable, *words, COMING], cwd=checkout.root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestWorkflow:
    """.github/workflows/release.yml."""

    @pytest.fixture
    def workflow(self) -> dict[Any, Any]:
        if not WORKFLOW.exists():
            pytest.skip("only the code was copied")
        workflow: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
        return workflow

    @pytest.fixture
    def jobs(self, workflow: dict[Any, Any]) -> dict[str, Any]:
        jobs: dict[str, Any] = workflow["jobs"]
        return jobs

    def test_a_tag_with_a_version_starts_it(self, workflow: dict[Any, Any]) -> None:
        # YAML reads the key "on" as True.
        assert workflow[True] == {"push": {"tags": ["[0-9]+.[0-9]+.[0-9]+"]}}

    def test_it_publishes_without_a_token(self, jobs: dict[str, Any]) -> None:
        assert not re.search(r"secrets\.|password:|user:", WORKFLOW.read_text())
        assert jobs["publish"]["permissions"] == {"id-token": "write"}
        assert jobs["build"]["permissions"] == {"contents": "read"}

    def test_it_runs_everything_that_a_change_has_to_pass_before_it_builds(self, jobs: dict[str, Any]) -> None:
        commands = [step["run"] for step in jobs["test"]["steps"] if "run" in step]
        assert commands == [".ci/run"]
        assert jobs["build"]["needs"] == "test"
        assert jobs["test"]["permissions"] == {"contents": "read"}

    def test_it_publishes_what_the_release_script_has_built_and_checked(self, jobs: dict[str, Any]) -> None:
        commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
        assert commands[-1] == 'python -m tests.support.release "$GITHUB_REF_NAME" --no-tag --into dist'
        assert jobs["publish"]["needs"] == "build"
        used = [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]]
        assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
