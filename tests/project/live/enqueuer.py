"""Enqueues a numbered job again and again until its input is closed, and prints each number that is committed.

Run by its text, with the code of a release or with that of today.
"""

# ruff: noqa: E402

import sys
import threading
import time

import django

django.setup()

from django.db import transaction

from tests.support.site import tasks

name = sys.argv[1]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
number, seconds, result = 0, [], None


def enqueue(word):
    before = time.monotonic()
    with transaction.atomic():
        made = tasks.write_row.enqueue(word)
    seconds.append(time.monotonic() - before)
    print(word, flush=True)
    return made


while not ended.is_set():
    number += 1
    try:
        if number % 20 == 0:  # what a page does: the job may have ended, or wait
            tasks.write_row.get_result(result.id)
        result = enqueue(f"{name} {number}")
    except Exception as error:
        if type(error).__name__ != "OutdatedQueue":  # the released code does not have it
            raise
        print(f"outdated: {error}", flush=True)
        break
    time.sleep(0.01)
print(f"the longest enqueue took {max(seconds):.3f} s")
