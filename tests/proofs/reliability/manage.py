"""A worker of the storm: it stops with the storm, however that one ends."""

from __future__ import annotations

import os
import signal
import sys

from django.core.management import execute_from_command_line

from tests.support.site.manage import stop_with_parent

if __name__ == "__main__":
    stop_with_parent(signal.SIGKILL)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.proofs.reliability.settings")
    execute_from_command_line(["manage.py", *sys.argv[1:]])
