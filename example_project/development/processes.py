"""The demo's child processes: started together, printed together, stopped together."""

import ctypes
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Self

GRACE_SECONDS = 20
LOOK_SECONDS = 0.5
COLOURS = {"web": "36", "worker": "33", "shop": "32"}
PR_SET_PDEATHSIG = 1
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A process ended too early, so everything ends."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def take_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """End in the same way for Ctrl-C, for a service manager and for a closed terminal."""
    for number in STOPPING:
        signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    name: str
    words: list[str]
    stop: signal.Signals
    """The signal that asks this program to end."""


@dataclass(slots=True)
class Process:
    command: Command
    popen: "subprocess.Popen[bytes]"
    threads: list[threading.Thread] = field(default_factory=list)

    def signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended, and so have all processes that it started
            os.killpg(self.popen.pid, number)

    def exit_code(self) -> int:
        """The code that a shell would show: 128 and more for a signal."""
        code = self.popen.wait()
        return code if code >= 0 else 128 - code


class Processes:
    """A context manager for processes; leaving it always stops them all."""

    def __init__(self, *commands: Command) -> None:
        self.commands = commands
        self.running: list[Process] = []
        self.ended: SimpleQueue[Process] = SimpleQueue()

    def __enter__(self) -> Self:
        try:
            # All forks before the first thread: a fork copies the locks that other threads hold, but not the threads.
            for command in self.commands:
                self.running.append(start(command))
            for process in self.running:
                self.watch(process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def watch(self, process: Process) -> None:
        # A new thread inherits the signal mask. A signal that came while all threads stood still (Ctrl-Z) could go to
        # any of them, but it must wake the main thread, which waits without an end.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        for target in (self.pass_output, self.await_end):
            thread = threading.Thread(target=target, args=[process], daemon=True)
            thread.start()
            process.threads.append(thread)
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)

    def pass_output(self, process: Process) -> None:
        for line in process.popen.stdout or ():
            say(process.command.name, line.decode(errors="replace").rstrip("\n"))

    def await_end(self, process: Process) -> None:
        process.popen.wait()
        self.ended.put(process)

    def wait(self, timeout: float | None = None) -> None:
        """Return after the timeout; raise Stopped as soon as any process has ended."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            try:
                # A signal between Python's last look and the wait does not end the wait.
                process = self.ended.get(timeout=max(0.0, min(LOOK_SECONDS, until - time.monotonic())))
                break
            except Empty:
                if time.monotonic() >= until:
                    return
        code = process.exit_code()
        reason = f"The {process.command.name} ended with exit code {code}, so everything stops."
        raise Stopped(reason, code or 1)

    def stop(self) -> None:
        """Ask the processes to end, wait, then kill them. A second Ctrl-C kills them at once."""
        take_signals(lambda *_: self.insist())
        for process in self.running:
            if process.popen.poll() is None:
                process.popen.send_signal(process.command.stop)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self.running:
            try:
                process.popen.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                say(process.command.name, f"did not stop within {GRACE_SECONDS} seconds and is killed")
        self.insist()
        for process in self.running:
            process.popen.wait()
            for thread in process.threads:
                thread.join(1)  # its last output
            if process.popen.stdout:
                process.popen.stdout.close()

    def insist(self) -> None:
        """Kill each process with its group, so that nothing that it started stays behind."""
        for process in self.running:
            process.signal_group(signal.SIGKILL)


def start(command: Command) -> Process:
    # In a session of its own, because Ctrl-C reaches every process of the terminal's group: the worker would get it
    # twice, from the terminal and from the demo, and the second one means "at once".
    popen = subprocess.Popen(
        command.words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "DJANGO_RUNSERVER_HIDE_WARNING": "true"},
        start_new_session=True,
        preexec_fn=in_child(),  # noqa: PLW1509 - no thread runs yet
    )
    return Process(command, popen)


def in_child() -> Callable[[], None]:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only

    def prepare() -> None:
        # A shell that starts the demo in the background ignores SIGINT, and a child would inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if prctl:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # if the demo is killed, nothing else would stop the child

    return prepare


def say(name: str, text: str) -> None:
    """Print whole lines with the name of their process."""
    prefix = f"{name:<6} |"
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\033[{COLOURS[name]}m{prefix}\033[0m"
    sys.stdout.write("".join(f"{prefix} {line}\n" for line in text.splitlines()))
    sys.stdout.flush()


class Saying(io.TextIOBase):
    """An output stream for commands that run in this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> int:
        say(self.name, text)
        return len(text)
