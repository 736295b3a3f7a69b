"""A demo that runs as a newcomer runs it, and a visitor of its shop."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import psycopg

from example_project.development.environment import Environment
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Home:
    """Folders and a database of the demo's own, so that it meets neither a developer's demo nor the tests."""

    folder: Path
    database_url: str | None

    @property
    def environment(self) -> dict[str, str]:
        chosen = {
            "PGQUEUE_VENV": sys.prefix,
            "PGQUEUE_EXAMPLE_HOME": str(self.folder / "example"),
            "PGQUEUE_POSTGRES_HOME": str(self.folder / "postgres"),
        }
        if self.database_url:
            chosen["DATABASE_URL"] = self.database_url
        return {**os.environ, **chosen}

    def leftovers(self) -> list[str]:
        """Every process that works for this demo, found by its environment or its command line (Linux only)."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended meanwhile, or is somebody else's
            if bytes(self.folder) in words and command:  # a zombie has no command
                found.append(f"{process.name} {command}")
        return found

    def pid_of(self, words: str) -> int:
        return next(int(found.split()[0]) for found in self.leftovers() if words in found)


@contextmanager
def open_home(given: str | None = None) -> Iterator[Home]:
    """`given`: the address of a server; None: the demo has its own."""
    with tempfile.TemporaryDirectory(prefix="pgqueue-demo-") as folder:
        Path(folder).chmod(0o755)  # run by root, the embedded server has another account
        if given is None:
            yield Home(Path(folder), None)
            return
        name = f"demo_{uuid4().hex[:12]}"
        with psycopg.connect(given, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
            yield Home(Path(folder), urllib.parse.urlsplit(given)._replace(path=f"/{name}").geturl())
            connection.execute(f'drop database "{name}" with (force)')


def command(*arguments: str) -> list[str]:
    """The README's command; in an environment that was not made by it, what it would run in one that was."""
    if Environment(Path(sys.prefix)).has(["demo"]):
        return [sys.executable, "example_project", *arguments]
    return [sys.executable, "-m", "example_project.demo", *arguments]


class Demo:
    """A running demo, and what it has printed so far."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.output = home.folder / f"output-{uuid4().hex}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command(*arguments),
                cwd=ROOT,
                env=home.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(START_SECONDS)

    @property
    def said(self) -> str:
        return self.output.read_text()

    def hears(self, pattern: str) -> str:
        """The first group of what the demo has said, or says soon."""

        def found() -> str:
            match = re.search(pattern, self.said)
            assert match or self.process.poll() is None, f"the demo has ended and never said {pattern}"
            return match[1] if match else ""

        try:
            return wait_until(found, f"the demo says {pattern}", START_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said}") from None

    def ends(self) -> int:
        return self.process.wait(START_SECONDS)


class Visitor:
    """A browser without a window: cookies, forms, and no proxy."""

    def __init__(self, url: str) -> None:
        self.url = url
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def get(self, path: str) -> str:
        with self.opener.open(urllib.parse.urljoin(self.url, path), timeout=30) as response:
            return str(response.read().decode())

    def get_json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def post(self, path: str, to: str = "", **fields: str) -> tuple[str, str]:
        """Fill in and send the form on that page, or one for another; where that leads, and what stands there."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(path))
        assert token, f"no form on {path}"
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        with self.opener.open(urllib.parse.urljoin(self.url, to or path), data, timeout=30) as response:
            return urllib.parse.urlsplit(response.url).path, response.read().decode()


BANNER_URL = r"The shop +(http://\S+)"
BANNER_PASSWORD = r"login admin, password (\S+)"
BANNER_END = r"(Ctrl-C +stops everything)"
