"""Makes the mistakes of the page, one after the other, in the project in which it is run: not a module of the tests.

    python mistakes.py '{"mistake": {"settings": "...", "run": "..."}, ...}'

Each is made in a fork, so that Django is imported once.  Prints what was seen of each, as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys

import django.core.management
import django.test  # for its imports: each fork would pay for them
import psycopg  # noqa: F401


def seen(mistake: dict[str, str]) -> str:
    """What is printed, and the error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            make(mistake)
        except BaseException as error:  # noqa: BLE001 -- SystemExit, too, is an answer of a command
            print(f"{type(error).__name__}: {error}")
    return said.getvalue()


def make(mistake: dict[str, str]) -> None:
    settings = importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    exec(mistake["settings"], vars(settings))  # noqa: S102
    django.setup()
    exec(mistake["run"], {"__name__": "shop.tasks", "manage": django.core.management.call_command})  # noqa: S102


def in_a_fork(mistake: dict[str, str]) -> str:
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as answer:
            answer.write(seen(mistake))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    os.environ["DJANGO_SETTINGS_MODULE"] = "website.settings"
    print(json.dumps({name: in_a_fork(mistake) for name, mistake in json.loads(sys.argv[1]).items()}))
