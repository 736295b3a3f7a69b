"""A project's manage.py, and a safety net: workers of tests that are killed stop as well."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from django.core.management import execute_from_command_line

PR_SET_PDEATHSIG = 1


def stop_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Linux tells this process to stop when the one that started it ends."""
    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(PR_SET_PDEATHSIG, by)


if __name__ == "__main__":
    if "PGQUEUE_RELOADER" not in os.environ:  # whoever was started by a reloader has to notice its end without help
        stop_with_parent()
    execute_from_command_line(["manage.py", *sys.argv[1:]])
