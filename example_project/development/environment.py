"""The virtual environment that the two commands run in. Standard library only; Linux and macOS."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn, Self

from example_project.development import machine

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "example_project" / "development" / "constraints.txt"
REQUIREMENTS = ROOT / "example_project" / "development" / "requirements.txt"
STAMP = "pgqueue-stamp.json"
LOCK = "pgqueue-lock"
# Keeps a user's own settings from sending the packages elsewhere, and uv from looking for another Python.
INSTALLERS_VARIABLES = {
    "PYTHONSAFEPATH": "1",
    "PIP_USER": "0",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}


class NoEnvironment(Exception):
    """The environment cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The inputs, and the groups and extras, that an environment was installed with."""

    inputs: str = ""
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder with a virtual environment in which the project is installed editable."""

    folder: Path

    @classmethod
    def provided(cls, names: Iterable[str]) -> Self:
        """This Python's environment, made and filled if necessary."""
        environment = cls.chosen()
        while not environment.has(names):
            environment.prepare(names)
            environment = cls.chosen()  # another Python may have taken the folder during the wait for the lock
        return environment

    @classmethod
    def chosen(cls) -> Self:
        """The folder that PGQUEUE_VENV names, else `.venv`, else (when another Python's is there) `.venv-3.13`."""
        if named := os.environ.get("PGQUEUE_VENV"):
            return cls(Path(named).absolute()).checked()
        usual = cls(ROOT / ".venv")
        # A developer with two Pythons keeps both environments: remaking one folder at every change would be slow, and
        # would remove it under programs that still run in it.
        if usual.version in (None, current_version()):
            return usual
        return cls(ROOT / f".venv-{current_version()}")

    def checked(self) -> Self:
        if self.version not in (None, current_version()):
            raise NoEnvironment(
                f"PGQUEUE_VENV={self.folder} was made by Python {self.version}, and this is {current_version()}: "
                "name another folder, or remove that one."
            )
        if self.version is None and self.folder.exists() and self.foreign_files():
            raise NoEnvironment(f"PGQUEUE_VENV={self.folder} is neither empty nor a virtual environment.")
        return self

    def foreign_files(self) -> list[Path]:
        if (self.folder / "pyvenv.cfg").exists():
            return []  # an environment whose Python is gone may be remade
        return [path for path in self.folder.iterdir() if path.name != LOCK]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def active(self) -> bool:
        """Whether this process runs in it."""
        return Path(sys.prefix).resolve() == self.folder.resolve()

    @property
    def version(self) -> str | None:
        """Such as "3.11"; None when there is no environment, or one whose Python is gone."""
        config = self.folder / "pyvenv.cfg"
        if not (self.python.exists() and config.exists()):
            return None
        found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", config.read_text(), re.MULTILINE)
        return found[1] if found else None

    @property
    def stamp(self) -> Stamp:
        try:
            return Stamp(**json.loads((self.folder / STAMP).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return Stamp()

    def has(self, names: Iterable[str]) -> bool:
        return self.version == current_version() and self.stamp.inputs == inputs() and {*names} <= {*self.stamp.names}

    def prepare(self, names: Iterable[str]) -> None:
        with self.locked():
            if self.version is None:
                self.create()
            if self.has(names) or self.version != current_version():
                return  # another process has just done it, or has made another Python's environment here
            wanted = sorted({*self.stamp.names, *names})
            say(f"Installing the project into {self.folder} with {', '.join(wanted)} (once; it takes a while) ...")
            self.install(wanted)
            (self.folder / STAMP).write_text(json.dumps(asdict(Stamp(inputs=inputs(), names=wanted))))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let in one process at a time; the lock ends with the process, however that ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("w")
        except OSError as error:
            raise NoEnvironment(f"{error}. Set PGQUEUE_VENV to a folder that you may write to.") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"Another process is preparing {self.folder}; waiting for it ...")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def create(self) -> None:
        for leftover in self.folder.iterdir():
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            elif leftover.name != LOCK:
                leftover.unlink()
        # Without pip, because Debian's Python cannot add it (no ensurepip): installers() finds what installs.
        try:
            venv.create(self.folder, symlinks=True, with_pip=False, prompt="django_pgqueue")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise NoEnvironment(f"The environment in {self.folder} cannot be created: {error}") from error

    def install(self, names: list[str]) -> None:
        for installer in self.installers():
            # From ROOT with relative paths, so that a folder name with blanks needs no quoting.
            env = {**os.environ, **INSTALLERS_VARIABLES}
            if all(
                subprocess.run([*installer, "--quiet", *step], cwd=ROOT, env=env, check=False).returncode == 0
                for step in steps(names)
            ):
                return
            say(f"{Path(installer[0]).name} could not install it; the lines above give the reason.")
        if problem := machine.wheel_problem():
            raise NoEnvironment(problem)
        raise NoEnvironment("The environment is not ready. Once the cause is gone, start the same command again.")

    def installers(self) -> Iterator[list[str]]:
        """Commands that can install into it, the fastest first; each is prepared only when the one before it failed."""
        if uv := shutil.which("uv"):
            no_cache = [] if cache_is_writable() else ["--no-cache"]
            yield [uv, "pip", "install", *no_cache, "--python", str(self.python)]
        own_pip = [str(self.python), "-m", "pip"]
        if runs(*own_pip, "--version") or runs(str(self.python), "-m", "ensurepip"):
            yield [*own_pip, "install"]
            return
        hosts_pip = [base_python(), "-m", "pip"]
        if runs(*hosts_pip, "--version"):
            yield [*hosts_pip, "--python", str(self.python), "install"]
            return
        say("This Python has neither ensurepip nor pip (Debian: apt install python3-venv), and uv is not on PATH.")

    def execute(self, arguments: list[str]) -> NoReturn:
        """Replace this process by the environment's Python, as if the environment had been activated."""
        os.environ["VIRTUAL_ENV"] = str(self.folder)
        os.environ["PATH"] = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        os.environ.pop("PYTHONHOME", None)
        sys.stdout.flush()
        os.execv(self.python, [str(self.python), *arguments])  # noqa: S606


def steps(names: list[str]) -> list[list[str]]:
    """Arguments of an installer, one list for each step: ``names`` are dependency groups and extras.

    The packages that the demo runs with have hashes: the installer refuses other files, whichever host they come from,
    and builds nothing from sources, because a build's own downloads have no hash. The packages that build this project
    have hashes too, so the project takes nothing else. The other groups and extras, for developers, have versions only.
    The requirements of a group are arguments, because a pip that is older than 25.1 has no --group.
    """
    checked = ["--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS.relative_to(ROOT))]
    if names == ["demo"]:
        return [checked, ["--no-deps", "--no-build-isolation", "-e", "."]]
    groups = dependency_groups()
    wanted = sorted({line for name in names if name in groups for line in requirements_of(name, groups)})
    extras = ",".join(name for name in names if name not in groups)
    project = f".[{extras}]" if extras else "."
    return [checked, ["-c", str(CONSTRAINTS.relative_to(ROOT)), *wanted, "-e", project]]


def dependency_groups() -> dict[str, list[str | dict[str, str]]]:
    """What [dependency-groups] of pyproject.toml has: requirements, and names of groups to include."""
    groups: dict[str, list[str | dict[str, str]]] = tomllib.loads(PYPROJECT.read_text()).get("dependency-groups", {})
    return groups


def requirements_of(name: str, groups: Mapping[str, Iterable[str | dict[str, str]]]) -> Iterator[str]:
    """The requirements of a group and of those that it includes."""
    for line in groups[name]:
        if isinstance(line, str):
            yield line
        else:
            yield from requirements_of(line["include-group"], groups)


def current_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def inputs() -> str:
    """Digest that changes with the packages to install, and when the checkout (installed by path) has moved."""
    pyproject = tomllib.loads(PYPROJECT.read_text())
    # The settings of linters, tests and other entries under "tool" change nothing about the installed project.
    hatch = pyproject.get("tool", {}).get("hatch")
    installed = [pyproject["build-system"], pyproject["project"], pyproject.get("dependency-groups"), hatch]
    parts = json.dumps(installed, sort_keys=True).encode(), CONSTRAINTS.read_bytes(), REQUIREMENTS.read_bytes()
    return hashlib.sha256(b"\0".join((*parts, bytes(ROOT)))).hexdigest()


def cache_is_writable() -> bool:
    """Whether uv may write its cache; where it may not, it would not even install."""
    cache = Path(os.environ.get("UV_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    return os.access(next(path for path in (cache, *cache.absolute().parents) if path.exists()), os.W_OK)


def base_python() -> str:
    """The Python outside every environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def runs(*command: str) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
