"""The built files: a wheel with the SQL inside the package, and an sdist that builds the same wheel."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import trove_classifiers
from packaging.requirements import Requirement

from django_pgqueue.distribution import DISTRIBUTION
from example_project.development.environment import dependency_groups, requirements_of

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]
WHEEL = DISTRIBUTION.replace("-", "_")
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "example_project" / "development" / "constraints.txt").read_text()
# Parts of the top level that a build must know, and docs, which may be missing where only the code was copied.
TEXTS = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "UPGRADING.md", "LICENSE"}
SDIST = {"django_pgqueue", "sql", "example_project", "tests", "pyproject.toml"} | TEXTS


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel", "sdist")
    return folder


def test_the_wheel_has_every_sql_file_inside_the_package(built: Path) -> None:
    ours = {f"django_pgqueue/{path.relative_to(ROOT)}" for path in (ROOT / "sql").rglob("*.*") if path.is_file()}
    assert {"django_pgqueue/sql/install.sql", "django_pgqueue/sql/message/pgqueue_message_fail.sql"} <= ours
    assert {name for name in contents(built) if name.startswith("django_pgqueue/sql/")} == ours


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    names = contents(built)
    assert {name.split("/")[0] for name in names} == {"django_pgqueue", f"{WHEEL}-{VERSION}.dist-info"}
    kinds = {Path(name).suffix for name in names if name.startswith("django_pgqueue/")}
    assert kinds <= {".py", ".sql", ".txt", ".typed", ".html", ".css", ".js", ".po", ".mo"}
    assert {"django_pgqueue/__init__.py", "django_pgqueue/py.typed"} <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "django_pgqueue").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


def test_the_wheel_declares_its_dependencies(built: Path) -> None:
    metadata = metadata_of(built)
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {re.split(r"[<>=; ]", line)[0] for line in needed} == {
        "django",
        "django-tasks",
        "psycopg",
        "django-admin-rangefilter",
        "cronsim",
    }
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"


def test_an_installed_wheel_finds_its_sql(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from django_pgqueue.functions import sql_files; print(sql_files.folder())"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd="/", check=True, capture_output=True, text=True)
    assert found.stdout.strip() == str(tmp_path / "django_pgqueue" / "sql")


def test_the_sdist_has_what_is_needed_to_build_and_to_test(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    docs = {"docs"} if (ROOT / "docs").exists() else set()
    assert {name.split("/")[0] for name in names} == SDIST | docs | {"PKG-INFO", ".gitignore"}
    assert {
        "sql/install.sql",
        "sql/message/pgqueue_message_fail.sql",
        "tests/__main__.py",
        "example_project/development/constraints.txt",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc") or "/output/" in name]


def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # not yet in Python 3.11.2, which Debian has
        sdist.extractall(tmp_path)
    build(next(tmp_path.glob(f"{WHEEL}-*")), tmp_path / "dist", "wheel")
    assert contents(tmp_path / "dist") == contents(built)


def test_every_requirement_has_exactly_one_version() -> None:
    extras, groups = PYPROJECT["project"]["optional-dependencies"], dependency_groups()
    required = [
        *PYPROJECT["build-system"]["requires"],
        *PYPROJECT["project"]["dependencies"],
        *(line for lines in extras.values() for line in lines),
        *(line for name in groups for line in requirements_of(name, groups)),
    ]
    names = {re.split(r"[\[<>=; ]", line)[0] for line in required} - {PYPROJECT["project"]["name"]}
    pinned = set(re.findall(r"^([\w-]+)==", CONSTRAINTS, re.MULTILINE))
    assert names - pinned == set()


def test_the_test_group_includes_the_small_extras() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    needed = {line for name in ("cli", "otel", "prometheus") for line in extras[name]}
    assert needed <= set(requirements_of("test", dependency_groups()))


def test_the_groups_are_those_of_the_standard() -> None:
    """PEP 735: the installers that know dependency groups resolve ours to the same requirements."""
    groups = dependency_groups()
    for name in groups:
        for line in requirements_of(name, groups):
            Requirement(line)


def test_the_project_has_its_addresses() -> None:
    urls = PYPROJECT["project"]["urls"]
    assert set(urls) == {"Documentation", "Source", "Changelog", "Issues"}
    assert all(address.startswith(urls["Source"]) for address in urls.values())
    for name in ("Documentation", "Changelog"):
        assert (ROOT / urls[name].partition("/main/")[2]).exists()


def test_the_classifiers_exist_and_match_the_readme() -> None:
    found = PYPROJECT["project"]["classifiers"]
    assert [line for line in found if line not in trove_classifiers.classifiers] == []
    assert found == sorted(found)
    versions = README.partition("\n## Versions\n")[2].partition("\n## ")[0]
    assert versions.startswith("\nPython 3.11 to 3.14. Django 5.2 (with the backport `django-tasks`), 6.0 and 6.1.")
    named = {line.rpartition(" :: ")[2] for line in found if re.search(r":: (Django|Python) :: \d\.\d+$", line)}
    assert named == {"3.11", "3.12", "3.13", "3.14", "5.2", "6.0", "6.1"}
    assert not [line for line in found if "OS Independent" in line], "the worker forks: no Windows"


def test_the_page_of_the_package_has_no_broken_link(built: Path) -> None:
    text = str(metadata_of(built).get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    ours = f"{PYPROJECT['project']['urls']['Source']}/blob/{VERSION}/"
    assert len(links) == len(re.findall(r"\]\(([^)\s]+)\)", README)) > 20
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(ours):
            assert (ROOT / link.removeprefix(ours).partition("#")[0]).exists(), link


def test_a_pin_is_a_version_and_names_no_host() -> None:
    for line in CONSTRAINTS.splitlines():
        assert re.fullmatch(r"(#.*|[\w-]+==[\w.]+( ; python_version [<>=]+ \"3\.\d+\")?|)", line), line


def build(root: Path, folder: Path, *targets: str) -> None:
    options = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def metadata_of(folder: Path) -> Message:
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return message_from_bytes(wheel.read(f"{WHEEL}-{VERSION}.dist-info/METADATA"))


def contents(folder: Path) -> set[str]:
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return set(wheel.namelist())
