"""Starts processes in a thread that lives as long as this process: the kernel stops them when that thread ends."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_thread = ThreadPoolExecutor(1, thread_name_prefix="launcher")


def launch(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    return _thread.submit(lambda: subprocess.Popen(command, **options)).result()
