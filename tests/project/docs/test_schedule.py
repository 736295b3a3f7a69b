"""The examples of docs/pages/data/schedule.md: their syntax, and the command lines in them."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.pages import FOLDER, ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.pages import Block

pytestmark = pytest.mark.once
PAGE = FOLDER / "data" / "schedule.md"
PROGRAM = "pgqueue-spark"


def units() -> list[ConfigParser]:
    found = []
    for block in blocks(PAGE, "ini"):
        # A unit may have several lines of ExecStart, and a ConfigParser has none of them twice.
        parser = ConfigParser(interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(block.text)
        found.append(parser)
    return found


def cron_job() -> Any:
    [block] = blocks(PAGE, "yaml")
    return yaml.safe_load(block.text)


def airflow() -> list[Block]:
    return [block for block in blocks(PAGE) if block.language == "python"]


def command_lines() -> Iterator[list[str]]:
    for block in blocks(PAGE, "ini"):
        yield from (shlex.split(line[10:]) for line in block.text.splitlines() if line.startswith("ExecStart="))
    [container] = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    yield [*container["command"], *container["args"]]
    for block in airflow():
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.keyword) and node.arg == "bash_command":
                yield shlex.split(ast.literal_eval(node.value))
    for block in blocks(PAGE, "text"):
        yield shlex.split(block.text)


def test_each_command_of_the_page_is_one_that_the_program_takes() -> None:
    pytest.importorskip("pyspark")
    parser = import_module("django_pgqueue.spark.__main__").parser()
    steps = []
    for program, *words in command_lines():
        assert program.rpartition("/")[2] == PROGRAM
        steps.append(parser.parse_args(words).step)
    assert sorted(steps) == [*["export"] * 5, *["report"] * 2]


def test_the_schedulers_keep_two_runs_apart_and_try_again() -> None:
    service, timer = units()
    assert service["Service"]["Type"] == "oneshot"  # a timer starts no second one while it runs
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert (timer["Timer"]["OnCalendar"], timer["Timer"]["Persistent"]) == ("hourly", "true")
    job = cron_job()
    assert [job["kind"], job["spec"]["concurrencyPolicy"], job["spec"]["jobTemplate"]["spec"]["backoffLimit"]] == [
        *("CronJob", "Forbid"),
        2,
    ]
    [block] = airflow()
    named = {node.arg: node.value for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.keyword)}
    assert ast.literal_eval(named["max_active_runs"]) == 1
    assert "'retries': 2" in ast.unparse(named["default_args"])


def test_the_program_is_there_and_refuses_spark_connect_before_it_starts_anything() -> None:
    pytest.importorskip("pyspark")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[PROGRAM].partition(":")
    program = f"import sys; from {module} import {function}; sys.exit({function}())"
    asked = [sys.executable, "-c", program, "export", "--lake", "nowhere", "--master", "sc://spark.example.org"]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert ended.returncode == 1
    assert "The pipeline cannot use Spark Connect (sc://spark.example.org): it counts and moves files" in ended.stderr
    assert "Traceback" not in ended.stderr
