"""The site in a browser, served from its built files: search, the button that copies, the pictures."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.support.fixtures import browser
from tests.support.fixtures.browser import Page
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium import webdriver

pytestmark = pytest.mark.browser

chromium = browser.chromium
EXPECTED = {
    "retry": "guide/retries.html",
    "celery": "move/celery.html",
    "chord": "move/celery.html#groups-and-chords",
    "cron": "guide/schedules.html",
    "sentry": "operate/recipes.html#sentry",
    "unknown task": "start/faq.html#unknown-task",
    "stuck": "start/faq.html#stuck-jobs",
    "LOCK_SECONDS": "reference/settings.html#lock_seconds",
    "pgqueue_message_cancel": "reference/sql.html#pgqueue_message_cancel",
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def results(chromium: webdriver.Chrome, words: str) -> list[str]:
    """Types the words into the page's field, and returns the addresses of what it shows."""
    chromium.execute_script(
        """
        const field = document.getElementById("properdocs-search-query");
        field.value = arguments[0];
        field.dispatchEvent(new Event("keyup"));
        """,
        words,
    )
    script = 'return [...document.querySelectorAll("#properdocs-search-results h3 a")].map(a => a.href)'
    return list(chromium.execute_script(script))


def test_the_first_result_of_a_search_is_the_page_that_a_newcomer_looks_for(
    chromium: webdriver.Chrome, address: str
) -> None:
    wrong = {}
    page = Page(chromium, address)
    for words, expected in EXPECTED.items():
        page.open("/index.html")

        def found(words: str = words) -> list[str]:
            return results(chromium, words)

        first, *_ = wait_until(found, f"the search for {words!r} has results")
        if not first.startswith(f"{address}/{expected}"):
            wrong[words] = first
    assert wrong == {}


def test_each_block_of_code_has_a_button_that_copies_it(chromium: webdriver.Chrome, address: str) -> None:
    Page(chromium, address).open("/start/your-project.html")
    allowed = {"permission": {"name": "clipboard-write"}, "setting": "granted", "origin": address}
    chromium.execute_cdp_cmd("Browser.setPermission", allowed)
    count = "return [document.querySelectorAll('pre > code').length, document.querySelectorAll('.copy').length]"
    blocks, buttons = chromium.execute_script(count)
    assert blocks == buttons > 5
    chromium.execute_script("document.querySelector('.copy').click()")
    text = "return document.querySelector('.copy').textContent"
    wait_until(lambda: chromium.execute_script(text) in ("Copied", "Selected"), "the button says what it did")


def test_the_pictures_are_drawn(chromium: webdriver.Chrome, address: str) -> None:
    Page(chromium, address).open("/index.html")
    widths = "return [...document.querySelectorAll('.col-md-9 img')].map(image => image.naturalWidth)"
    wait_until(lambda: all(chromium.execute_script(widths)), "the pictures are loaded")
    assert len(chromium.execute_script(widths)) == 2
