"""No page has more than a minor fault for those who do not see it, see little, or use no mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from django_pgqueue import control
from django_pgqueue.durable import emit
from django_pgqueue.models import Attempt, Message
from tests.admin import axe
from tests.admin.test_browser import NARROW, OVERVIEW, WIDE, chromium, page, queue
from tests.admin.test_channel import CHANNELS
from tests.admin.test_edits import EDITS
from tests.admin.test_exchange import BINDINGS, EXCHANGES
from tests.admin.test_insights import INSIGHTS
from tests.admin.test_schedule import QUEUES, SCHEDULES
from tests.support.fixtures.admin import ATTEMPTS, EVENTS, MESSAGES, WORKERS

if TYPE_CHECKING:
    from tests.support.fixtures import browser

__all__ = ["chromium", "page", "queue"]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe.source(tmp_path_factory.mktemp("axe"))


def lists() -> list[str]:
    return [
        OVERVIEW,
        MESSAGES,
        ATTEMPTS,
        f"{ATTEMPTS}errors/",
        f"{ATTEMPTS}edit/",
        EDITS,
        EVENTS,
        f"{MESSAGES}edit/?queue=mail",
        WORKERS,
        QUEUES,
        SCHEDULES,
        f"{SCHEDULES}add/",
        f"{QUEUES}add/",
        CHANNELS,
        f"{CHANNELS}add/",
        f"{CHANNELS}tenant-1/change/",
        INSIGHTS,
        f"{MESSAGES}approvals/",
        EXCHANGES,
        f"{EXCHANGES}add/",
        BINDINGS,
    ]


@pytest.mark.usefixtures("queue")
def test_no_page_has_more_than_a_minor_fault(page: browser.Page, source: str) -> None:
    ready = Message.objects.get(task="shop.tasks.book_courier").pk
    slow, running, waits = (Message.objects.get(queue=name).pk for name in ("slow", "long", "batch"))
    failed = Attempt.objects.get(status="failed").pk
    messages = [f"{MESSAGES}{pk}/change/" for pk in (ready, slow, running, waits)]
    emit("paid:7", {"charge": "ch_1"})
    edit = control.edit("move", control.Filter(queue="mail", task_contains="send"), queue="slow", by="Ada")
    pages = [*lists(), *messages, f"{EDITS}{edit}/change/", f"{EVENTS}paid_3A7/change/", f"{ATTEMPTS}{failed}/change/"]
    found = {}
    for url in pages:
        page.open(url)
        look(page)
        found[url] = axe.faults(page, source)
        look(page, dark=True)
        found[f"{url} dark"] = axe.faults(page, source, "color-contrast")
        if "change" in url or url in (OVERVIEW, MESSAGES):
            look(page, narrow=True)
            found[f"{url} narrow"] = axe.faults(page, source)
    page.open(f"{MESSAGES}{waits}/change/")
    page.press("Run now…")
    for how in ({}, {"dark": True}, {"narrow": True}):
        look(page, **how)
        found[f"the question before it runs {how}"] = axe.faults(page, source)
    page.complaints()  # the policy forbids axe its styles
    assert not any(found.values()), "\n".join(
        f"{where}: {fault}" for where, faults in found.items() for fault in faults
    )


@pytest.mark.usefixtures("queue")
def test_a_keyboard_reaches_every_action_and_does_it(page: browser.Page) -> None:
    ready = Message.objects.get(task="shop.tasks.book_courier").pk
    # What is folded in is reached when it is folded out.
    script = """
        const what = "a[href], button, input:not([type=hidden]), select, textarea, summary";
        const seen = one => one.checkVisibility({visibilityProperty: true}) && !one.disabled;
        window.missed = new Set([...document.querySelectorAll(what)].filter(seen));
        document.addEventListener("focusin", event => window.missed.delete(event.target));
        return window.missed.size;
    """
    for url in (*lists(), f"{MESSAGES}{ready}/change/"):
        page.open(url)
        look(page)
        page.driver.execute_script("document.getElementById('pgqueue-live-switch')?.click()")
        count = page.driver.execute_script(script)
        missed = []
        for _ in range(4):  # the field of a date has a place for the day, the month and the year
            press(page, Keys.TAB * (count + 1))
            missed = page.driver.execute_script("return [...window.missed].map(one => one.outerHTML.slice(0, 200))")
            if not missed:
                break
        assert not missed, (url, missed)
    for button, then in (("Cancel…", "Cancel 1 message?"), ("Cancel it", "1 message cancelled.")):
        pressed = page.find(f"//button[.='{button}'] | //input[@value='{button}']", By.XPATH)
        page.driver.execute_script("arguments[0].focus()", pressed)
        press(page, Keys.ENTER)
        page.shows(then)


def press(page: browser.Page, keys: str) -> None:
    ActionChains(page.driver).send_keys(keys).perform()


def look(page: browser.Page, *, dark: bool = False, narrow: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    page.driver.set_window_size(NARROW if narrow else WIDE, 900)
