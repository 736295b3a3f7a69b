"""Code for a process that a task forks: it becomes a process of its own, and no second worker.

It has the signals of a new program, none of the connections that were open, and no way back into the slot or the event
loop of its task.  This concerns only processes that a worker process forks and that go on in Python (``os.fork``,
``multiprocessing``): another program gets nothing of all this from its worker anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import traceback
from concurrent.futures.thread import _threads_queues as threads_queues
from functools import cache
from queue import Empty
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

import psycopg
from django.db import connections
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType, TracebackType

SIGNALS = frozenset(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
"""The signals that a worker process handles.  Each of them ends a forked process.

SIGINT too, at once and without a KeyboardInterrupt: one that is raised during a fork is swallowed, and Python 3.13 may
not raise it at all if the thread that forked is not the main one."""
CAME_BACK = 70
"""The exit code of a process that was on its way back into its worker."""
POOLS_SECONDS = 1.0
"""How long pools and executors may take to stop, before their processes are terminated."""

opened: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""The driver's connections of this process: the worker's own, and those of all of Django's threads."""
shared_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Event loops that run the coroutines of many jobs."""

_guarded: int | None = None
"""The pid of this process, if it is a worker's."""
_forked: int | None = None
"""In a process that a task has forked: the thread that forked it, the only one that is left."""
_before = threading.local()
_inherited: list[Any] = []
"""Objects of the parent, kept from the garbage collector: what they do at their end would concern the parent."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Surrounds the jobs of a worker process."""
    global _guarded  # noqa: PLW0603 -- of the process
    _register()
    _guarded = os.getpid()
    try:
        yield
    finally:
        _guarded = None


@cache
def _register() -> None:
    if can_fork():
        os.register_at_fork(before=_prepare, after_in_parent=_go_on, after_in_child=_begin)


def can_fork() -> bool:
    """Whether processes can fork here.  Not on Windows."""
    return hasattr(os, "fork")


def note_connection(connection: Any) -> None:
    """Notes a connection that the forked processes must not use."""
    if hasattr(connection, "pgconn"):  # other databases have other drivers
        opened.add(connection)


connection_created.connect(
    lambda connection, **_: note_connection(connection.connection),
    weak=False,
    dispatch_uid="django_pgqueue.consumer.forks",
)


def has_forked() -> bool:
    """Whether this is the thread of a slot in a process that was forked there."""
    return _forked is not None and threading.get_ident() == _forked


class ForkedChildrenEndHere:
    """Surrounds code of a project: a process that was forked there does not come out."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        if _forked is not None and has_forked():  # the first half spares each job the call
            leave(error)


forked_children_end_here = ForkedChildrenEndHere()


def leave(error: BaseException | None = None) -> NoReturn:
    """Ends the process as the interpreter ends a program, after ``error`` if there is one.

    It calls no exit handlers: the worker process has registered them, for itself.
    """
    code = 0 if error is None else 1
    with contextlib.suppress(BaseException):  # whatever it is, this process ends here
        if isinstance(error, SystemExit):
            code = _exit_code(error)
        elif error is not None:
            traceback.print_exception(error)
    flush_streams()
    os._exit(code)


def flush_streams() -> None:
    """Writes what is buffered, so that no forked process writes it a second time.

    Where it cannot be written, because the disk of the log is full or nobody reads it any more, all else goes on.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def end_children() -> None:
    """Ends the daemons of ``multiprocessing``, and the processes of pools, managers and executors.

    Python does so at the exit of the interpreter, which a worker process does not reach.
    """
    multiprocessing, executors = sys.modules.get("multiprocessing.util"), sys.modules.get("concurrent.futures.process")
    if multiprocessing is None:
        return

    def stop() -> None:
        """A pool that has not been stopped starts others in place of its processes that end, and nobody ends these."""
        multiprocessing._run_finalizers(0)  # noqa: SLF001
        if executors is not None:
            executors._python_exit()  # noqa: SLF001

    thread = threading.Thread(target=stop, name="pools of processes", daemon=True)
    with contextlib.suppress(RuntimeError):  # there is no room for a thread
        thread.start()
        thread.join(POOLS_SECONDS)
    daemons = [child for child in sys.modules["multiprocessing.process"].active_children() if child.daemon]
    for child in daemons + _processes_of(executors):
        with contextlib.suppress(ValueError):  # it has ended, and was closed
            child.terminate()


def _processes_of(executors: ModuleType | None) -> list[Any]:
    managers = [] if executors is None else list(executors._threads_wakeups)  # noqa: SLF001
    return [process for manager in managers for process in list((manager.processes or {}).values())]


# Around each fork, in the thread that forks


def _prepare() -> None:
    _before.mask = _before.loop = None
    if _guarded != os.getpid():
        return
    # A signal that reaches the child before it has handlers of its own would run the worker's handler, and be lost.
    _before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with contextlib.suppress(RuntimeError):
        _before.loop = asyncio.get_running_loop()


def _go_on() -> None:
    if _before.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before.mask)


def _begin() -> None:
    global _guarded, _forked
    if _before.mask is None:  # a child of a child has its signals from its parent, which may have chosen others
        return
    _guarded, _forked = None, threading.get_ident()
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # SIGHUP, by nohup
            signal.signal(number, signal.SIG_DFL)
    _let_go_of_connections()
    _empty_pool_of_this_thread()
    if _before.loop is not None and _before.loop in shared_loops:
        _end_with_next_turn(_before.loop)
    signal.pthread_sigmask(signal.SIG_SETMASK, _before.mask - SIGNALS)


def _let_go_of_connections() -> None:
    """Disconnects the inherited connections.  To use or close one would write into the parent's conversation with the
    server; and as long as it is open here, the server does not notice the parent's death.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in opened:
        with contextlib.suppress(psycopg.Error):  # it is closed
            os.dup2(nowhere, connection.pgconn.socket, inheritable=False)
    os.close(nowhere)
    for alias in connections:
        wrapper = connections[alias]
        pools = getattr(wrapper, "_connection_pools", {})
        _inherited.extend([wrapper, dict(pools)])
        pools.clear()
        del connections[alias]  # the next use opens a new one


def _empty_pool_of_this_thread() -> None:
    """Keeps a thread of a ThreadPoolExecutor, such as that of sync_to_async, from going on with the parent's work."""
    waiting = threads_queues.get(threading.current_thread())
    if waiting is not None:
        with contextlib.suppress(Empty):
            while True:
                waiting.get_nowait()
        waiting.put(_Return("pool of threads"))


def _end_with_next_turn(loop: asyncio.AbstractEventLoop) -> None:
    for handle in getattr(loop, "_ready", ()):  # the next steps of other jobs
        handle.cancel()
    loop.call_soon(_Return("event loop").run)


class _Return:
    """Takes the place of the next work, and ends this process."""

    def __init__(self, where: str) -> None:
        self.where = where

    def run(self, *_: Any) -> NoReturn:
        message = (
            f"Process {os.getpid()} was forked by a task, and returned into the {self.where} of its worker. The "
            "process ends. A forked process must do its work and leave by os._exit(); or use multiprocessing or "
            "subprocess.\n"
        )
        with contextlib.suppress(BaseException):
            sys.stderr.write(message)
        leave(SystemExit(CAME_BACK))
