"""A worker of the storm: it stops with the storm, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from django.core.management import execute_from_command_line

PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    stop_with_parent()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.proofs.reliability.settings")
    execute_from_command_line(["manage.py", *sys.argv[1:]])
