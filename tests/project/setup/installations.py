"""A user's environment after an installation, and the project of the README in it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import pytest
from psycopg.conninfo import conninfo_to_dict

from example_project.development import interpreter
from example_project.development.environment import INSTALLERS_VARIABLES, Environment
from tests.support.databases import psql
from tests.support.pages import FOLDER, ROOT, Block, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

README = ROOT / "README.md"
PAGE = FOLDER / "start" / "your-project.md"
DJANGOS = {"5.2": (3, 11), "6.1": (3, 12)}
"""The least Python of each."""
EnvironmentOf: TypeAlias = "Callable[[str], tuple[Environment, str]]"
PROBE = "cronsim"
"""A small package without dependencies: if it cannot be installed, no index can be reached."""
MINUTES_15 = 900

MODELS = """
from django.db import models


class Order(models.Model):
    customer = models.TextField()
    email = models.EmailField()
    total = models.DecimalField(max_digits=9, decimal_places=2)
"""
MANAGE = """
import os, sys

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
SETUP = "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'; django.setup()\n"
# Enqueued by one process and run by a worker: the pages' own blocks run their jobs in one process.
ENQUEUE = """
order = Order.objects.create(customer="Grace", email="grace@example.com", total="1.00")
print("enqueued", send_receipt.enqueue(order.pk).id)
"""
OUTCOME = """
from shop.tasks import send_receipt

result = send_receipt.get_result({id!r})
print(result.status, result.errors)
"""


class NotInstalled(Exception):
    """No installer could install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An environment in a folder, and a project beside it."""

    environment: Environment
    project: Path

    @classmethod
    def made(cls, folder: Path) -> Self:
        """An empty environment.  The test is skipped if no index can be reached from it."""
        environment = Environment(folder / "environment")
        environment.folder.mkdir(parents=True)
        environment.create()
        made = cls(environment=environment, project=folder / "project")
        made.project.mkdir()
        try:
            made.install("--no-deps", PROBE)
        except NotInstalled as error:
            pytest.skip(f"no index can be reached: {str(error).strip().splitlines()[-1]}")
        return made

    def install(self, *arguments: str) -> None:
        said = "This Python has no installer."
        for installer in self.environment.installers():
            env = {**os.environ, **INSTALLERS_VARIABLES, "PIP_NO_COMPILE": "1"}  # few of the files are used
            done = subprocess.run(
                [*installer, *arguments], cwd="/", env=env, capture_output=True, text=True, check=False,
                timeout=MINUTES_15,
            )  # fmt: skip
            if done.returncode == 0:
                return
            said = f"{done.stdout}\n{done.stderr}"
        raise NotInstalled(said)

    def run(self, *arguments: str, script: str | None = None) -> str:
        """Return the output of the environment's Python in the project; it must succeed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTHON"))}
        done = subprocess.run(
            [str(self.environment.python), *arguments], input=script, cwd=self.project, env=kept, capture_output=True,
            text=True, check=False, timeout=MINUTES_15,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def try_out(self, program: str) -> str:
        """The same, of a program with Django set up."""
        return self.run("-", script=SETUP + program)

    def write_readmes_project(self, conninfo: str) -> None:
        """The project that the README describes, with the files that its blocks name."""
        (self.project / "shop").mkdir()
        for name, text in {"__init__": "", "models": MODELS, **self._modules()}.items():
            (self.project / "shop" / f"{name}.py").write_text(text)
        (self.project / "settings.py").write_text(_settings(conninfo))
        (self.project / "manage.py").write_text(MANAGE)

    def _modules(self) -> dict[str, str]:
        named = {block.module: block.text for block in _python() if block.module}
        return {name.removeprefix("shop."): text for name, text in named.items() if name.startswith("shop.")}

    def follow_readme(self, conninfo: str) -> None:
        """Runs each block of the README: the commands, the Python in one process, and the SQL in psql."""
        self.run("manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
        self.run("manage.py", "check", "--database", "default")
        script = "\n".join(block.text for block in _python() if not block.module)
        [job] = [
            line.split()[1] for line in self.try_out(script + ENQUEUE).splitlines() if line.startswith("enqueued ")
        ]
        self.run("manage.py", "qworker", "--burst")
        outcome = self.try_out(OUTCOME.format(id=job))
        assert outcome.startswith("SUCCESSFUL"), outcome
        for number, block in enumerate(blocks(README, "sql")):
            file = self.project / f"{number}.sql"
            file.write_text(block.text)
            done = psql(conninfo, "--set=ON_ERROR_STOP=1", "--file", str(file))
            assert done.returncode == 0, f"{block}: {done.stderr}"


def _python() -> Iterator[Block]:
    yield from blocks(README, "python")


def _settings(conninfo: str) -> str:
    [block] = [block for block in _python() if block.module == "settings"]
    server = conninfo_to_dict(conninfo)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": server["dbname"],
        **{name.upper(): str(server.get(name) or "") for name in ("user", "password", "host", "port")},
    }
    return (
        "import django\n"
        "SECRET_KEY, USE_TZ = 'tests only', True\n"
        "EMAIL_BACKEND = 'django.core.mail.backends.locmem.EmailBackend'\n"
        f"DATABASES = {{'default': {database!r}}}\n"
        f"{block.text}\n"
        "INSTALLED_APPS += ['shop', *(['django_tasks'] if django.VERSION < (6, 0) else [])]\n"
    )


def made_by_the_page(version: str, folder: Path, wheel: Path) -> tuple[Environment, str]:
    """An environment with that Django, made by the command of the page "Into your project"; and the command."""
    pythons = [path for found, path in sorted(interpreter.installed().items()) if found >= DJANGOS[version]]
    if not pythons:
        pytest.skip(f"no Python here is new enough for Django {version}")
    environment = Environment(folder / "environment")
    subprocess.run([pythons[0], "-m", "venv", "--without-pip", str(environment.folder)], check=True)
    installation = Installation(environment=environment, project=folder)
    [install, install_for_5_2, *_] = [block.text for block in blocks(PAGE, "sh")]
    line = install_for_5_2 if version == "5.2" else install
    words = shlex.split(line.replace("path/to/django_pgqueue", str(wheel)))
    assert words[:4] == ["python", "-m", "pip", "install"]
    try:
        installation.install(*words[4:], f"django=={version}.*")
    except NotInstalled as error:
        try:
            installation.install("--no-deps", PROBE)
        except NotInstalled:
            pytest.skip(f"no index can be reached: {str(error).strip().splitlines()[-1]}")
        raise
    return environment, line


def build_wheel(folder: Path) -> Path:
    """The folder in which an installer finds the wheel of this checkout by its name."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "wheel"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def write_wheel(path: Path, metadata: str, files: Mapping[str, str]) -> Path:
    """A wheel of the name and version in ``path``."""
    path.parent.mkdir(exist_ok=True)
    about = "-".join(path.name.split("-")[:2]) + ".dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/METADATA", metadata)
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in wheel.namelist()))
    return path
