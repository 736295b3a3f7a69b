"""The README's first command, as a newcomer runs it."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import psycopg
import pytest

from example_project.environment import Environment
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


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


@pytest.fixture
def home() -> Iterator[Home]:
    given = os.environ.get("DATABASE_URL")
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

    def post(self, path: str, **fields: str) -> tuple[str, str]:
        """Fill in and send the form on that page; where that leads, and what stands there."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(path))
        assert token, f"no form on {path}"
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        with self.opener.open(urllib.parse.urljoin(self.url, path), data, timeout=30) as response:
            return urllib.parse.urlsplit(response.url).path, response.read().decode()


BANNER_URL = r"The shop +(http://\S+)"
BANNER_PASSWORD = r"login admin, password (\S+)"
BANNER_END = r"(Ctrl-C +stops everything)"


def test_one_command_starts_the_shop_and_ctrl_c_ends_it(home: Home) -> None:
    with Demo(home) as demo:
        demo.hears(BANNER_END)
        password = demo.hears(BANNER_PASSWORD)
        visitor = Visitor(demo.hears(BANNER_URL))

        assert "Earl Grey" in visitor.get("/")
        assert visitor.get("/orders/").count("/orders/") >= 10, "the shop was filled with orders"

        product = re.search(r'name="(quantity_\d+)"', visitor.get("/"))
        assert product
        order, _ = visitor.post("/", customer="Ada", email="ada@example.com", **{product[1]: "2"})
        status = f"{order}status.json"
        wait_until(lambda: visitor.get_json(status)["receipt"], "the receipt arrives")
        assert list((home.folder / "example" / "mail").iterdir()), "the receipt was mailed into a file"

        assert 'name="password"' in visitor.get("/admin/login/")
        where, page = visitor.post("/admin/login/?next=/admin/", username="admin", password=password)
        assert where == "/admin/"
        assert "Finished attempts" in page

        demo.process.send_signal(signal.SIGTERM)
        assert demo.ends() == 0, demo.said
        assert "is killed" not in demo.said
    wait_until(lambda: not home.leftovers(), "no process is left")

    with Demo(home) as again:
        again.hears(BANNER_END)
        assert again.hears(BANNER_PASSWORD) == password
        assert "Grace Hopper" not in again.said, "a shop that has orders is not filled again"
        assert f'href="{order}"' in Visitor(again.hears(BANNER_URL)).get("/orders/")
        again.process.send_signal(signal.SIGINT)
        assert again.ends() == 0, again.said
    wait_until(lambda: not home.leftovers(), "no process is left")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker's process through /proc")
def test_a_dead_worker_ends_the_demo_with_its_exit_code(home: Home) -> None:
    with Demo(home) as demo:
        demo.hears(BANNER_END)
        os.kill(home.pid_of("qworker"), signal.SIGKILL)
        assert demo.ends() == 128 + signal.SIGKILL, demo.said
        assert "The worker ended with exit code 137, so everything stops." in demo.said
    wait_until(lambda: not home.leftovers(), "no process is left")


def test_two_demos_at_once_share_the_orders_and_not_the_port(home: Home) -> None:
    with Demo(home) as one, Demo(home) as other:
        urls = {one.hears(BANNER_URL), other.hears(BANNER_URL)}
        assert len(urls) == 2
        assert one.hears(BANNER_PASSWORD) == other.hears(BANNER_PASSWORD)
        assert (one.said + other.said).count("Grace Hopper") == 1
        one.process.terminate()
        assert one.ends() == 0
        assert "Earl Grey" in Visitor(other.hears(BANNER_URL)).get("/")
    wait_until(lambda: not home.leftovers(), "no process is left")


def test_a_port_that_is_taken_is_named(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Demo(home, "--port", str(port)) as demo:
            assert demo.ends() == 1
            assert f"Port {port} can not be used" in demo.said


def test_a_database_that_does_not_answer_is_told_in_one_line(home: Home) -> None:
    nowhere = Home(home.folder, "postgresql://somebody@127.0.0.1:1/nothing")
    with Demo(nowhere) as demo:
        assert demo.ends() == 1
        assert "No database: " in demo.said
        assert "Traceback" not in demo.said


def test_the_help_needs_no_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "PGQUEUE_VENV": str(tmp_path / "venv")}
    asked = [sys.executable, "example_project", "--help"]
    answer = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "Ctrl-C" in answer.stdout
    assert "manage.py" in answer.stdout
    assert not (tmp_path / "venv").exists()


def test_manage_py_runs_in_the_demos_environment(home: Home) -> None:
    with Demo(home, "manage.py", "makemigrations", "--check", "--dry-run") as demo:
        assert demo.ends() == 0, demo.said
        assert "No changes detected" in demo.said
    wait_until(lambda: not home.leftovers(), "no process is left")
