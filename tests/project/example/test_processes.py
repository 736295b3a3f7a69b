"""The demo's children: heard while they run, and gone when the demo is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from example_project.development import processes
from example_project.development.processes import Command, Processes, Stopped
from tests.project.setup.servers import alive
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 20
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


@pytest.fixture(autouse=True)
def our_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping takes over the signals of the whole process, which here is pytest's."""
    monkeypatch.setattr(processes, "take_signals", lambda _handler: None)


def python(code: str, name: str = "worker", stop: signal.Signals = signal.SIGTERM) -> Command:
    return Command(name=name, words=[sys.executable, "-c", code], stop=stop)


def test_every_line_names_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    with Processes(python("print('one\\ntwo')", "web")) as children, pytest.raises(Stopped):
        children.wait(SECONDS)
    assert capsys.readouterr().out == "web    | one\nweb    | two\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(3)", 3), ("pass", 1), ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL)],
    ids=["as a shell says it", "an end without an error is missed all the same", "killed"],
)
def test_the_end_of_a_process_is_reported_with_its_exit_code(program: str, code: int) -> None:
    with (
        Processes(python("import time; time.sleep(60)", "web"), python(program)) as children,
        pytest.raises(Stopped, match=r"The worker ended with exit code \d+") as stopped,
    ):
        children.wait(SECONDS)
    assert stopped.value.code == code


def test_a_missing_program_ends_the_other_processes(tmp_path: Path) -> None:
    missing = Command(name="web", words=[str(tmp_path / "missing")], stop=signal.SIGINT)
    children = Processes(python("import time; time.sleep(60)"), missing)
    with pytest.raises(FileNotFoundError), children:
        pass
    assert [process.popen.poll() is None for process in children.running] == [False]


def test_each_process_gets_the_signal_that_it_handles(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import time\ntry:\n    print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('bye')"
    with Processes(python(code, "web", signal.SIGINT)) as children:
        said = ""

        def up() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "up" in said

        wait_until(up, "the child is up")
    assert capsys.readouterr().out == "web    | bye\n"
    assert children.running[0].popen.returncode == 0


def test_a_process_that_ignores_sigterm_is_killed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    with Processes(python(STUBBORN)) as children:
        wait_until(lambda: "deaf" in capsys.readouterr().out, "the child ignores SIGTERM")
    assert children.running[0].popen.returncode == -signal.SIGKILL
    assert "is killed" in capsys.readouterr().out


def test_grandchildren_end_with_their_parent(tmp_path: Path) -> None:
    grandchild = tmp_path / "pid"
    code = f"""
import pathlib, subprocess, sys, time
started = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}])
pathlib.Path({str(grandchild)!r}).write_text(str(started.pid))
time.sleep(60)
"""
    with Processes(python(code)):
        wait_until(lambda: grandchild.exists() and grandchild.read_text(), "the grandchild has started")
    wait_until(lambda: not alive(int(grandchild.read_text())), "the grandchild is gone")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_children_end_when_the_demo_is_killed() -> None:
    code = f"""
import signal, sys
sys.path.insert(0, {str(ROOT)!r})
from example_project.development.processes import Command, Processes
child = Command(name="web", words=[sys.executable, "-c", "import time; time.sleep(60)"], stop=signal.SIGINT)
with Processes(child) as children:
    print(children.running[0].popen.pid, flush=True)
    children.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        child = int(demo.stdout.readline())
        demo.kill()
    wait_until(lambda: not alive(child), "the child is gone")


def test_a_signal_that_came_while_all_were_stopped_is_handled() -> None:
    """As after Ctrl-Z: the kernel gives it to any thread that does not refuse it."""
    code = f"""
import signal, sys
sys.path.insert(0, {str(ROOT)!r})
from example_project.development.processes import Command, Processes, take_signals
take_signals(signal.default_int_handler)
child = Command(name="web", words=[sys.executable, "-c", "import time; time.sleep(60)"], stop=signal.SIGTERM)
with Processes(child, child) as children:
    print("open", flush=True)
    children.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == b"open\n"
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
            demo.send_signal(number)
        try:
            assert demo.wait(SECONDS) == -signal.SIGINT  # as after any KeyboardInterrupt
        finally:
            demo.kill()
