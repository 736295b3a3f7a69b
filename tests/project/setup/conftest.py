import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from example_project.development.environment import Environment
from tests.project.setup.installations import EnvironmentOf, build_wheel, made_by_the_page
from tests.project.setup.servers import Host


@pytest.fixture(scope="session")
def initialised() -> Iterator[Path]:
    """The files of a server that has run once. Initialising takes longer than all the rest of its life."""
    with open_folder() as folder:
        host = Host(folder)
        assert host.user("demo").url
        host.stop()
        yield folder / "demo" / "postgres"


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which an installer finds the wheel of this checkout by its name."""
    return build_wheel(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="session")
def environment_of(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> EnvironmentOf:
    """A user's environment with a version of Django: tests share it, because an installation takes long."""

    @cache
    def made(version: str) -> tuple[Environment, str]:
        [wheel] = shelf.glob("*.whl")
        return made_by_the_page(version, tmp_path_factory.mktemp("user"), wheel)

    return made


@pytest.fixture
def host(initialised: Path) -> Iterator[Host]:
    """A place for servers. The profile "demo" is initialised there, every other is new."""
    with open_folder() as folder:
        host = Host(folder)
        host.folder("demo").make()
        subprocess.run(["cp", "-a", str(initialised), str(host.folder("demo").servers_own)], check=True)
        yield host
        host.stop()


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter, which pytest's own temporary folders are not."""
    memory = Path("/dev/shm")  # a server's thousand small files take a disk longer than all else that a test does
    roomy = memory.exists() and shutil.disk_usage(memory).free > 2 << 30
    # With a blank in the name, because users have such paths.
    folder = Path(tempfile.mkdtemp(prefix="pgqueue test ", dir=memory if roomy else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
