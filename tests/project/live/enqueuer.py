"""Enqueues a numbered job again and again until its input is closed, and prints each word that is committed.

Run by its text, with the code of a release or with that of today.
"""

# ruff: noqa: E402

import sys
import threading
import time
from typing import Any

import django

django.setup()

from django.db import transaction

from tests.support.site import tasks

OPEN_SECONDS = float(sys.argv[2])  # how long a transaction goes on after it has enqueued


def close(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def enqueue(word: str) -> Any:
    with transaction.atomic():
        made = tasks.write_row.enqueue(word)
        time.sleep(OPEN_SECONDS)
    print(word, flush=True)
    return made


def run(name: str, ended: threading.Event) -> None:
    number, longest, result = 0, 0.0, None
    while not ended.is_set():
        number += 1
        before = time.monotonic()
        if result is not None and number % 20 == 0:  # what a page does: the job may have ended, or wait
            tasks.write_row.get_result(result.id)
        result = enqueue(f"{name} {number}")
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.01)
    print(f"the longest turn took {longest:.3f} s")


asked = threading.Event()
threading.Thread(target=close, args=[asked], daemon=True).start()
try:
    run(sys.argv[1], asked)
except Exception as error:
    if type(error).__name__ != "OutdatedQueue":  # the released code does not have it
        raise
    print(f"outdated: {error}", flush=True)
