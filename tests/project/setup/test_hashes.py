"""The packages of the demo are known by their hashes: example_project/development/requirements.txt."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from hatchling.build import get_requires_for_build_editable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from django_pgqueue.distribution import DISTRIBUTION
from example_project.development.environment import dependency_groups, requirements_of, steps
from example_project.development.interpreter import MINORS, OLDEST
from tests.project.setup.installations import write_wheel

ROOT = Path(__file__).resolve().parents[3]
RUN = "run example_project/development/hashes.py"
LISTED = (ROOT / "example_project" / "development" / "requirements.txt").read_text()
CONSTRAINTS = (ROOT / "example_project" / "development" / "constraints.txt").read_text()
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
HASH = r"--hash=sha256:[0-9a-f]{64}"
LINE = rf"[\w-]+==[\w.]+( ; [^\\#@/]+)?( \\\n    {HASH})+"
PYTHONS = [f"{OLDEST[0]}.{minor}" for minor in MINORS if OLDEST[1] <= minor <= 14]
# One of them has made the environment of these tests.
INSTALLERS = [*(["pip"] if find_spec("pip") else []), *(["uv"] if shutil.which("uv") else [])]


def requirements() -> list[Requirement]:
    return [Requirement(line.split(" \\")[0]) for line in LISTED.splitlines() if re.match(r"\w", line)]


def of(python: str) -> dict[str, str]:
    """Return the packages that the file has for a Python of that version, on a machine like this one."""
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    chosen = [found for found in requirements() if found.marker is None or found.marker.evaluate(here)]
    versions = {str(canonicalize_name(found.name)): str(found.specifier).removeprefix("==") for found in chosen}
    assert len(versions) == len(chosen), f"two versions of a package on Python {python}"
    return versions


def needed(requirement: Requirement, extra: str = "") -> Iterator[Requirement]:
    """It, and what it brings along, as the packages say it that are installed here."""
    if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
        return
    yield requirement
    for wanted in requirement.extras or {""}:
        for line in distribution(requirement.name).requires or ():
            brought = Requirement(line)
            if canonicalize_name(brought.name) != canonicalize_name(requirement.name):
                yield from needed(brought, wanted)


def test_the_file_has_versions_and_hashes_and_no_host() -> None:
    lines = re.sub(r"^#.*\n", "", LISTED, flags=re.MULTILINE)
    assert re.fullmatch(rf"({LINE}\n)+", lines)
    assert "://" not in LISTED


def test_its_versions_are_those_that_the_tests_run_with() -> None:
    pins = [Requirement(line) for line in CONSTRAINTS.splitlines() if re.match(r"\w", line)]
    pinned = {(canonicalize_name(pin.name), str(pin.specifier)) for pin in pins}
    assert {(canonicalize_name(found.name), str(found.specifier)) for found in requirements()} <= pinned


@pytest.mark.parametrize("python", PYTHONS)
def test_every_supported_python_has_one_version_of_each(python: str) -> None:
    versions = of(python)
    assert versions["django"].startswith("5.2." if python == "3.11" else "6.")
    assert ("django-tasks" in versions) == (python == "3.11")


def test_the_dependencies_of_the_demo_are_in_the_file() -> None:
    versions = of(f"{sys.version_info.major}.{sys.version_info.minor}")
    group = map(Requirement, requirements_of("demo", dependency_groups()))
    for requirement in chain(needed(Requirement(DISTRIBUTION)), *map(needed, group)):
        if canonicalize_name(requirement.name) == DISTRIBUTION:
            continue
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is needed and has no hash: run example_project/development/hashes.py"
        assert requirement.specifier.contains(version), (
            f"{requirement} and {version}: run example_project/development/hashes.py"
        )
        assert distribution(requirement.name).version == version


def test_the_build_requirements_are_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    versions = of(f"{sys.version_info.major}.{sys.version_info.minor}")
    for requirement in map(Requirement, [*BUILD, *get_requires_for_build_editable()]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])
    for requirement in chain.from_iterable(needed(Requirement(line)) for line in BUILD):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A checkout whose demo needs a leaf, and a folder of wheels that has one."""
    for name in ("wheels", "checkout/example_project/development"):
        (tmp_path / name).mkdir(parents=True)
    make_wheel(tmp_path / "wheels", "leaf")
    return tmp_path


def make_wheel(folder: Path, name: str, code: str = "", requires: str = "") -> Path:
    more = f"Requires-Dist: {requires}\n" if requires else ""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
    return write_wheel(folder / f"{name}-1-py3-none-any.whl", metadata, {f"{name}.py": code})


def require(shelf: Path, *wheels: Path) -> None:
    lines = [f"{w.name.split('-')[0]}==1 --hash=sha256:{hashlib.sha256(w.read_bytes()).hexdigest()}\n" for w in wheels]
    (shelf / "checkout" / "example_project" / "development" / "requirements.txt").write_text("".join(lines))


def install(shelf: Path, installer: str) -> "subprocess.CompletedProcess[str]":
    """The first step of the demo's installation, into an environment of its own, from that folder of wheels."""
    venv.create(shelf / "venv", with_pip=False)
    python = str(shelf / "venv" / "bin" / "python")
    commands = {
        "pip": [sys.executable, "-m", "pip", "--isolated", "--python", python, "install"],
        "uv": ["uv", "pip", "install", "--python", python],
    }
    return subprocess.run(
        [*commands[installer], "--no-cache-dir", "--no-index", f"--find-links={shelf / 'wheels'}", *steps(["demo"])[0]],
        cwd=shelf / "checkout",
        env={name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))},
        capture_output=True,
        text=True,
        check=False,
    )


def installed(shelf: Path) -> bool:
    return any(shelf.glob("venv/lib/python*/site-packages/leaf.py"))


@pytest.mark.parametrize("installer", INSTALLERS)
class TestInstalling:
    def test_a_package_that_was_tampered_with_is_refused(self, shelf: Path, installer: str) -> None:
        wheel = shelf / "wheels" / "leaf-1-py3-none-any.whl"
        require(shelf, wheel)
        genuine = wheel.read_bytes()
        make_wheel(shelf / "wheels", "leaf", "import os; os.system('id')")
        done = install(shelf, installer)
        assert (done.returncode != 0, installed(shelf)) == (True, False)
        assert "hash" in done.stderr.lower()
        wheel.write_bytes(genuine)
        done = install(shelf, installer)
        assert (done.returncode, installed(shelf)) == (0, True), done.stderr

    def test_a_package_with_a_dependency_without_a_hash_is_refused(self, shelf: Path, installer: str) -> None:
        make_wheel(shelf / "wheels", "twig")
        require(shelf, make_wheel(shelf / "wheels", "leaf", requires="twig"))
        done = install(shelf, installer)
        assert (done.returncode != 0, installed(shelf)) == (True, False)
        assert "twig" in done.stderr

    def test_sources_are_not_built(self, shelf: Path, installer: str) -> None:
        """The tools for a build would be fetched without a hash."""
        (shelf / "wheels" / "leaf-1-py3-none-any.whl").unlink()
        archive = shutil.make_archive(str(shelf / "wheels" / "leaf-1"), "gztar", shelf, "checkout")
        listed = shelf / "checkout" / "example_project" / "development" / "requirements.txt"
        listed.write_text(f"leaf==1 --hash=sha256:{hashlib.sha256(Path(archive).read_bytes()).hexdigest()}\n")
        done = install(shelf, installer)
        assert (done.returncode != 0, installed(shelf)) == (True, False)
