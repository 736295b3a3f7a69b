"""The worker's lines: coloured where somebody reads them, plain where a file does."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.management.terminal.colours import OUTCOMES, Coloured, formatter
from tests.support.site import slow
from tests.support.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def line(message: str, level: int = logging.INFO) -> str:
    record = logging.makeLogRecord(
        {"msg": message, "levelno": level, "levelname": logging.getLevelName(level), "created": 0, "msecs": 0}
    )
    return Coloured("%(asctime)s %(levelname)-7s %(message)s").format(record)


@pytest.mark.parametrize("word", OUTCOMES)
def test_an_outcome_is_coloured_and_its_text_stays(word: str) -> None:
    coloured = line(f"{word} id=1 task=shop.tasks.send_receipt")
    assert re.search(f"\x1b\\[[0-9;]+m{word}\x1b", coloured)
    assert ESCAPE.sub("", coloured).endswith(f"INFO    {word} id=1 task=shop.tasks.send_receipt")


def test_failures_are_red_and_retries_yellow() -> None:
    assert "\x1b[31mERROR" in line("failed id=1", logging.ERROR)
    assert "\x1b[33mWARNING" in line("retried id=1", logging.WARNING)
    assert "\x1b[31mERROR" in line("something else", logging.ERROR)
    assert not ESCAPE.search(line("started worker=x"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "options", "variables", "coloured"),
    [
        (Terminal(), {}, {}, True),
        (io.StringIO(), {}, {}, False),
        (Terminal(), {}, {"NO_COLOR": "1"}, False),
        (Terminal(), {}, {"NO_COLOR": ""}, True),
        (Terminal(), {}, {"TERM": "dumb"}, False),
        (Terminal(), {"no_color": True}, {}, False),
        (io.StringIO(), {"force_color": True}, {}, True),
    ],
)
def test_colours_depend_on_the_terminal(
    stream: io.StringIO, options: dict[str, Any], variables: Mapping[str, str], coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert isinstance(formatter(stream, options), Coloured) is coloured


@pytest.mark.slow
def test_on_a_real_terminal(environment: dict[str, str]) -> None:
    slow.whoami.enqueue()
    slow.time_out_by_itself.enqueue()
    window = Window("qworker", "--burst", environment=environment)
    assert window.ends() == 0, window.seen
    assert ESCAPE.search(window.seen)
    plain = ESCAPE.sub("", window.seen)
    assert re.search(r"INFO    succeeded id=\d+ task=tests.support.site.slow.whoami attempt=1 ms=", plain)
    assert re.search(r"ERROR   failed id=\d+ task=tests.support.site.slow.time_out_by_itself attempt=1 ms=", plain)
