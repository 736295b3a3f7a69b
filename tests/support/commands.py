"""Whether a command of a page could be run: its program, its files and its flags exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from argparse import _SubParsersAction
from functools import cache
from typing import TYPE_CHECKING, Any

from django.core.management import get_commands, load_command_class

from django_pgqueue import distribution
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

MANAGE = re.compile(r"manage\.py[\s\"',]+([a-z_]+)([^\n`|;#]*)")
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")

RUN_BY_TEST_BACKUP = {"pg_dump", "pg_restore", "pg_basebackup", "createdb", "vacuumdb", "psql", "cp", "touch"}
"""Programs of the page on backups, each of whose lines is run by tests/project/docs/test_backup.py."""


OF_THE_SYSTEM = {"timedatectl", "df"}
"""Programs that look after a host: nothing of this project can show that their lines work."""


def problem(command: str) -> str | None:
    """Return what is wrong with a line of a ``sh`` block; None: nothing that could be found without running it."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    match words:
        case (
            []
            | ["python", "manage.py", *_]
            | ["python", "-m", "pip", "wheel", *_]
            | ["python", "-m", "pip", "uninstall", distribution.DISTRIBUTION]
        ):
            return None  # manage_problems looks at those of manage.py, wherever they stand on the page
        case [program, *_] if program in OF_THE_SYSTEM or (program in RUN_BY_TEST_BACKUP and words[1:2] != ["-f"]):
            return None
        case ["python", "-m", "pip", "install", "--group", group, *wanted]:
            return group_problem(group) or next(filter(None, map(extra_problem, wanted)), None)
        case ["python" | ".venv/bin/python", "-m", "pip", "install", *wanted]:
            return next(filter(None, map(extra_problem, wanted)), None)
        case ["$EDITOR", *files]:
            return next(filter(None, map(missing, files)), None)
        case _:
            file = needed_file(words)
            return missing(file) if file else f"nobody knows how to check {words[0]!r}: teach tests/support/commands.py"


def needed_file(words: list[str]) -> str | None:
    """The file of this project without which a command is nothing; None: the command is unknown."""
    match words:
        case ["python3", folder, *_]:
            return f"{folder}/__main__.py"
        case [".venv/bin/python", "-m", "example_project.development.embedded_postgres", *_]:
            return "example_project/development/embedded_postgres/__main__.py"
        case ["python", "-m", module, *_] if module.startswith("tests."):
            return f"{module.replace('.', '/')}.py"
        case ["python", "-m", "properdocs", "build", "--strict", "-f", file] | ["psql", "-f", file]:
            return file
        case _:
            return None


def missing(path: str) -> str | None:
    return None if (ROOT / path).exists() else f"there is no {path}"


def extra_problem(word: str) -> str | None:
    """``"path/to/django_pgqueue[django52]"`` must name an extra of this project."""
    found = re.fullmatch(r"(?:.*pgqueue|\.)\[(.+)\]", word)
    extras = pyproject()["project"]["optional-dependencies"]
    unknown = [name for name in found[1].split(",") if name not in extras] if found else []
    return f"there is no extra {unknown[0]!r}" if unknown else None


def group_problem(name: str) -> str | None:
    return None if name in pyproject()["dependency-groups"] else f"there is no dependency group {name!r}"


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def manage_problems(text: str) -> Iterator[str]:
    """Yield what is wrong with any ``manage.py …`` of a page, in its prose as well as in its blocks."""
    for name, rest in MANAGE.findall(text):
        if name not in get_commands():
            yield f"there is no command manage.py {name}"
            continue
        for flag in FLAG.findall(rest):
            if flag not in flags(name):
                yield f"manage.py {name} has no flag {flag}"


def flags(name: str) -> set[str]:
    return {flag for action in actions(name) for flag in action.option_strings}


@cache
def actions(name: str) -> list[Any]:
    return all_actions(load_command_class(get_commands()[name], name).create_parser("manage.py", name))


def all_actions(parser: ArgumentParser) -> list[Any]:
    """With those of the parts of a command, such as ``qpipeline export``."""
    found = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            found += [inner for part in action.choices.values() for inner in all_actions(part)]
    return found
