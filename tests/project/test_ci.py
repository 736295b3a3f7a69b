"""A run of the tests that hangs ends with the stacks of its threads, and takes what it started with it."""

import os
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import ci

HANGS = """
import faulthandler, subprocess, sys, time
faulthandler.enable()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
def waits_for_ever():
    time.sleep(600)
waits_for_ever()
"""


def test_a_run_that_hangs_ends_with_the_stacks_of_its_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ci.Run("tests that hang", [sys.executable, "-c", HANGS], tmp_path / "run")
    run.start()
    child = first_number(tmp_path / "run" / "output")
    run.deadline = 0

    assert not run.told()
    told = capsys.readouterr().out
    assert "tests that hang did not end in time" in told
    assert "in waits_for_ever" in told
    assert_ends(child)


def test_a_run_that_ends_in_time_says_whether_it_passed(tmp_path: Path) -> None:
    for name, code, passed in (("good", "pass", True), ("bad", "raise SystemExit(1)", False)):
        run = ci.Run(name, [sys.executable, "-c", code], tmp_path / name)
        run.start()
        assert run.told() is passed


SHARES = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
running = here / f"running-{sys.argv[2]}"
running.touch()
print(len([*here.glob("running-*")]))
time.sleep(0.5)
running.unlink()
"""


def test_few_runs_share_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "AT_ONCE", 2)
    monkeypatch.setattr(ci, "begun_to_prepare", lambda _: subprocess.Popen([sys.executable, "-c", ""]))
    collected: list[str] = []
    monkeypatch.setattr(ci, "collect", collected.append)
    folders = [tmp_path / str(number) for number in range(5)]
    newest = tmp_path / "newest"
    newest.symlink_to(sys.executable)
    pythons = [sys.executable, str(newest), sys.executable, str(newest), str(newest)]
    runs = [
        ci.Run(f.name, [python, "-c", SHARES, str(tmp_path), f.name], f)
        for f, python in zip(folders, pythons, strict=True)
    ]

    ci.start_in_turn(runs, str(newest))

    assert all(one.told() for one in runs)
    assert max(int((folder / "output").read_text()) for folder in folders) == 2
    assert collected == [sys.executable], "once, before its first run; the newest one when it is prepared"


def first_number(file: Path) -> int:
    deadline = time.monotonic() + 60
    while not (line := file.read_text()).endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(line)


def assert_ends(pid: int) -> None:
    """A killed process may be left as a zombie, if nobody waits for it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


@pytest.mark.parametrize(
    ("kind", "pythons"),
    [("spark", 1), ("once and not spark", 1), ("slow and not once", 1), ("not once and not slow", 2)],
)
def test_each_file_belongs_to_one_part_of_the_tests_of_a_kind(kind: str, pythons: int) -> None:
    option = "--ignore-glob="
    left_out = [
        words[place].removeprefix(option)
        for _, _, words in ci.shares((3, 11), (3, 13))
        if kind in words
        for place in [next(n for n, word in enumerate(words) if word.startswith(option))]
    ]
    assert len(left_out) > 1
    for file in (ci.ROOT / "tests").rglob("test_*.py"):
        assert sum(not fnmatch(str(file), pattern) for pattern in left_out) == pythons, file


def test_one_by_one_the_newest_python_is_prepared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def prepare(python: str) -> "subprocess.Popen[bytes]":
        done.append(f"prepare {python}")
        return subprocess.Popen([sys.executable, "-c", ""])

    def run(*words: str) -> bool:
        done.append(" ".join(words))
        return words[-1] != "bad"

    monkeypatch.setattr(ci, "begun_to_prepare", prepare)
    monkeypatch.setattr(ci, "run", run)
    assert ci.one_by_one("new", {"one": ["old", "bad"], "two": ["new", "good"]}) == {"one": False, "two": True}
    assert done == ["prepare new", "old bad", "new good"]


def test_the_site_is_looked_at_where_lint_has_brought_what_builds_it() -> None:
    shares = ci.shares((3, 11), (3, 13))
    [site] = [place for place, (_, python, words) in enumerate(shares) if words == ["tests", *ci.SITE]]
    [lint] = [place for place, (title, _, _) in enumerate(shares) if title == "lint"]
    assert lint < site
    assert shares[lint][1] == shares[site][1] == (3, 13)
    assert all((ci.ROOT / file).exists() for file in ci.SITE)
