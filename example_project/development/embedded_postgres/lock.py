"""Advisory locks on files: the kernel releases them when their holder ends, however it ends."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(slots=True)
class Lock:
    """A held lock. It ends with `release`, or with the last process that has the file open."""

    path: Path
    fd: int

    @classmethod
    def exclusive(cls, path: Path) -> Self:
        return cls._wait(path, fcntl.LOCK_EX)

    @classmethod
    def shared(cls, path: Path) -> Self:
        return cls._wait(path, fcntl.LOCK_SH)

    @classmethod
    def exclusive_now(cls, path: Path) -> Self | None:
        """The lock, or None while another process holds it."""
        fd = open_lock(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return cls(path, fd)

    @classmethod
    def _wait(cls, path: Path, kind: int) -> Self:
        fd = open_lock(path)
        fcntl.flock(fd, kind)
        return cls(path, fd)

    @property
    def vanished(self) -> bool:
        """Whether the file was removed or replaced, so that other processes would not see this lock."""
        try:
            return os.fstat(self.fd).st_ino != self.path.stat().st_ino
        except FileNotFoundError:
            return True

    def release(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def is_held(path: Path) -> bool:
    lock = Lock.exclusive_now(path)
    if lock:
        lock.release()
    return lock is None


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
