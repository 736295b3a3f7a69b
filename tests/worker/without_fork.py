"""``manage.py`` on a system without fork, as far as Python shows it: what Windows lacks is missing here as well.

python -m tests.worker.without_fork qworker
"""

from __future__ import annotations

import asyncio
import concurrent.futures  # noqa: F401 -- asyncio and this one know other ways, which they choose when they are imported
import multiprocessing.util  # noqa: F401
import os
import select
import signal
import socket
import stat
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from typing import Any

MISSING = {
    os: (
        "fork", "forkpty", "register_at_fork", "wait", "wait3", "wait4", "waitid", "posix_spawn", "WNOHANG",
        "WIFEXITED", "getuid", "geteuid", "getgid", "getpgid", "getpgrp", "setsid", "killpg", "sysconf",
        "set_blocking", "get_blocking",
    ),
    signal: (
        "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGKILL", "SIGALRM", "SIGQUIT", "SIGSTOP", "SIGCONT", "SIGPIPE",
        "pthread_sigmask", "pthread_kill", "sigwait", "alarm", "setitimer", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK",
    ),
    select: ("poll", "epoll"),
}  # fmt: skip
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")

real_select = select.select


def select_of_windows(*lists: Any) -> Any:
    """Waits for sockets, and for at least one of them."""
    files = [file for files in lists[:3] for file in files]
    if not files:
        raise OSError(10022, "An invalid argument was supplied")
    for file in files:
        number = file if isinstance(file, int) else file.fileno()
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            raise OSError(10038, "An operation was attempted on something that is not a socket")
    return real_select(*lists)


class Missing:
    def find_spec(self, name: str, *_: Any) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def take_away() -> None:
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    select.select = select_of_windows
    loop, pair = asyncio.SelectorEventLoop(), socket.socketpair()  # these still work, and need nothing of the above
    loop.close()
    for one in pair:
        one.close()


if __name__ == "__main__":
    take_away()
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *sys.argv[1:]])
