"""The README's first command, as a newcomer runs it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.project.example.demos import BANNER_END, BANNER_PASSWORD, BANNER_URL, ROOT, Demo, Home, Visitor, open_home
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def home() -> Iterator[Home]:
    with open_home(os.environ.get("DATABASE_URL")) as home:
        yield home


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
def test_two_demos_share_the_orders_and_not_the_port_and_each_ends_with_its_own_worker(home: Home) -> None:
    with Demo(home) as one, Demo(home) as other:
        urls = {one.hears(BANNER_URL), other.hears(BANNER_URL)}
        assert len(urls) == 2
        assert one.hears(BANNER_PASSWORD) == other.hears(BANNER_PASSWORD)
        assert (one.said + other.said).count("Grace Hopper") == 1
        one.process.terminate()
        assert one.ends() == 0
        assert "Earl Grey" in Visitor(other.hears(BANNER_URL)).get("/")
        os.kill(home.pid_of("qworker"), signal.SIGKILL)
        assert other.ends() == 128 + signal.SIGKILL, other.said
        assert "The worker ended with exit code 137, so everything stops." in other.said
    wait_until(lambda: not home.leftovers(), "no process is left")


def test_a_port_in_use_is_named(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Demo(home, "--port", str(port)) as demo:
            assert demo.ends() == 1
            assert f"Port {port} cannot be used" in demo.said


def test_an_unreachable_database_is_reported_in_one_line(home: Home) -> None:
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


def test_manage_py_without_django_names_the_command_that_has_it() -> None:
    asked = [sys.executable, "-S", "example_project/manage.py", "check", "--deploy"]  # -S: without installed packages
    answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr == "This Python has no Django. Run: python3 example_project manage.py check --deploy\n"
