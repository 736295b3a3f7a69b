"""The pages in Chromium, under policies that allow nothing but files of the site itself, and ask for a nonce."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import math
import os
import threading
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.http import HttpResponse
from django.test import Client, override_settings
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from django_pgqueue import control, functions
from django_pgqueue.models import Approval, Attempt, Message, ReportError, ReportQueue
from django_pgqueue.routing import Exchange
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.admin.test_channel import CHANNELS
from tests.admin.test_durable import ask
from tests.admin.test_edits import EDITS
from tests.admin.test_exchange import BINDINGS, ORDERS
from tests.admin.test_insights import INSIGHTS, NOON, hour
from tests.admin.test_schedule import QUEUES, SCHEDULES, by_hand, url as url_of
from tests.support.fixtures import browser
from tests.support.fixtures.admin import (
    ATTEMPTS,
    MESSAGES,
    WORKER,
    WORKERS,
    claim,
    complete,
    fail,
    lose,
    retry,
    roll_up,
    send,
    sign_in,
    sql,
)
from tests.support.site import subscribers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OVERVIEW = "/admin/django_pgqueue/overview/"
HOUR_MS = 3_600_000
NARROW, WIDE = 390, 1440

PICTURES = os.environ.get("PGQUEUE_PICTURES") == "1"

# From 6.1 on, Django's own pages give a nonce to their scripts and styles: ours must not be refused among them.
NONCES: dict[str, Any] = {}
if django.VERSION >= (6, 1):
    NONCE = "<CSP_NONCE_SENTINEL>"  # the value of Django's CSP.NONCE
    NONCES["SECURE_CSP"] = {"script-src": [NONCE], "style-src": [NONCE]}
    NONCES["TEMPLATES"] = copy.deepcopy(settings.TEMPLATES)
    NONCES["TEMPLATES"][0]["OPTIONS"]["context_processors"].append("django.template.context_processors.csp")

chromium = browser.chromium
under_way: list[str] = []
has_ended = threading.Event()


def only_from_here(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def answer(request: HttpRequest) -> HttpResponse:
        under_way.append(request.path)
        try:
            # What comes when the test has ended must not meet the flush of its tables.
            response = HttpResponse(status=503) if has_ended.is_set() else get_response(request)
        finally:
            under_way.remove(request.path)
        policies = [response.get("Content-Security-Policy"), "default-src 'self'"]
        response["Content-Security-Policy"] = ", ".join(filter(None, policies))
        return response

    return answer


@pytest.fixture
def page(chromium: webdriver.Chrome, django_user_model: type, transactional_db: None) -> Iterator[browser.Page]:
    """The window of somebody who is logged in."""
    has_ended.clear()
    with_nonces = ["django.middleware.csp.ContentSecurityPolicyMiddleware"] if NONCES else []
    middleware = ["tests.admin.test_browser.only_from_here", *with_nonces, *settings.MIDDLEWARE]
    with override_settings(MIDDLEWARE=middleware, **NONCES):
        server = LiveServer("127.0.0.1")
        page = browser.Page(chromium, server.url)
        client = Client()
        client.force_login(django_user_model.objects.create_superuser("root"))  # type: ignore[attr-defined]
        page.open("/static/pgqueue/admin.css")
        chromium.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value})
        yield page
        complaints = page.complaints()
        has_ended.set()
        wait_until(lambda: not under_way, "the last answer")
        chromium.get("about:blank")
        page.complaints()  # about what was refused at the end: the next test is not to find them
        server.stop()
        assert not complaints


@pytest.fixture
def queue(transactional_db: None) -> None:
    """Something of everything."""
    worked_for_hours()
    sign_in("worker-web1-4711", ["default", "mail"], slots=8)
    sql(
        "insert into pgqueue_worker (id, pid, slots, hostname, seen_at) "
        "values ('worker-web3-9', 9, 4, 'web3', now() - interval '1 h')"
    )
    sign_in("worker-web2-23", None, ("slow",), asleep_ms=60_000)
    send(task="shop.tasks.book_courier")
    for _ in range(2):
        retry(claim()[0], ConnectionError("The courier's line is busy: <please> call again later"), dequeue_at=0)
    send(queue="mail")
    fail(claim("mail")[0], expired())
    for _ in range(3):
        send(queue="mail", channel="tenant-1")
        complete(claim("mail")[0], '{"sent": true}')
    send(queue="expired", task="shop.tasks.crashed")
    lose("expired")
    for _ in range(3):
        send(task="shop.tasks.send_reminder", delay_ms=HOUR_MS, priority=10)
    send(
        '{"args": ["2026-01"], "kwargs": {"deep": [1, {"two": null}]}}', queue="slow", task="shop.tasks.monthly_report"
    )
    send('{"parcel": 7}', task=None, queue="warehouse")
    waits = send(queue="mail", delay_ms=HOUR_MS)
    send(queue="batch", after=functions.After((waits, send(queue="mail", delay_ms=HOUR_MS)), policy="succeeded"))
    send(queue="long", task="shop.tasks.monthly_report")
    [held] = claim("long", lock_ms=HOUR_MS)
    functions.message_progress(connection, held, '{"fraction": 0.425, "text": "page 17 of 40"}')
    send(queue="unknown")
    functions.message_park(connection, [(one, "shop.tasks has no 'new'.") for one in claim("unknown")], worker=WORKER)
    send(dequeue_at=-(2**63), task="<script>alert(1)</script>")
    sql(
        "insert into pgqueue_message (dequeue_at, content, queue, unlock_at, locked_at, worker) "
        "values (0, '{}', 'mail', pgqueue_now() + 60000, now(), 'worker-web1-4711')"
    )


def expired() -> Exception:
    """With a traceback."""
    try:
        raise ValueError("The voucher TEA-2019 has expired")  # noqa: TRY301
    except ValueError as error:
        return error


def worked_for_hours() -> None:
    """A history, so that there is something to draw."""
    sql("""
        insert into pgqueue_attempt (message_id, dequeue_at, created_at, started_at, finished_at, attempt, priority,
            final, status, queue, task)
        select 1000000 + i, 0, at - interval '1 s' * (1 + sin(i / 90.0)), at, at + interval '1 s', 1, 0, true,
               'succeeded', case when i %% 3 = 0 then 'mail' else 'default' end, 'shop.tasks.send_receipt'
        from (select i, now() - interval '230 min' + interval '230 min' * sqrt(i / 1200.0) as at
              from generate_series(1, 1200) i) as t
    """)


@pytest.fixture
def settled_by_people(queue: None) -> None:
    """Schedules, exchanges and channels, some of them in a bad way."""
    by_hand("remind Ada", cron="0 9 * * mon", timezone="America/New_York")
    Scheduler("default").look_if_due(connection)
    now = dt.datetime.now(dt.UTC)
    by_hand("resting", cron=None, interval_ms=7_200_000, paused_at=now - dt.timedelta(hours=3))
    by_hand("gone", cron="0 0 1 * *", next_at=now, declared=True)
    by_hand("wrong", cron="whenever", next_at=now)
    control.pause("mail", by="Ada")
    exchange = Exchange("orders")
    exchange.declare()
    exchange.bind("order.#", task=subscribers.audit)
    exchange.bind(r"^order\.(created|paid)$", queue="books", regex=True)
    control.set_channel("payment-api", max_concurrency=5, release_interval=3600)
    send(channel="payment-api")


def looked_at(page: browser.Page, name: str) -> None:
    """On a phone nothing has to be moved sideways.  The pictures are for people."""
    assert width(page) <= NARROW, name
    assert "92233720368" not in page.text, f"{name} shows an end of bigint, which is no time"
    if not PICTURES:
        return
    page.save(f"admin-{name}", WIDE)
    page.save(f"admin-{name}-dark", WIDE, dark=True)
    page.save(f"admin-{name}-narrow", NARROW)
    page.save(f"admin-{name}-narrow-dark", NARROW, dark=True)


@pytest.mark.usefixtures("settled_by_people")
def test_the_pages_fit_narrow_screens(page: browser.Page) -> None:
    courier = Message.objects.get(task="shop.tasks.book_courier").pk
    slow = Message.objects.get(queue="slow").pk
    running, parked, waits = (Message.objects.get(queue=name).pk for name in ("long", "unknown", "batch"))
    failed = Attempt.objects.get(status="failed").pk
    for name, url, text in [
        ("overview", OVERVIEW, "no worker"),
        ("message-list", MESSAGES, "no worker"),
        ("message", f"{MESSAGES}{courier}/change/", "The courier's line is busy"),
        ("message-without-worker", f"{MESSAGES}{slow}/change/", "manage.py qworker --queues slow"),
        ("message-running", f"{MESSAGES}{running}/change/", "page 17 of 40"),
        ("message-parked", f"{MESSAGES}{parked}/change/", "for a worker that knows its task"),
        ("message-waits", f"{MESSAGES}{waits}/change/", "It waits for 2 jobs"),
        ("attempt-list", ATTEMPTS, "ValueError: The voucher TEA-2019 has expired"),
        ("errors", f"{ATTEMPTS}errors/", "The voucher TEA-2019 has expired"),
        ("again", f"{ATTEMPTS}edit/?status__exact=failed", "1 message matches now"),
        ("attempt", f"{ATTEMPTS}{failed}/change/", "The voucher TEA-2019 has expired"),
        ("approvals", f"{MESSAGES}approvals/", "Approvals"),
        ("worker-list", WORKERS, "all but slow"),
        ("worker", f"{WORKERS}worker-web1-4711/change/", "busy"),
        ("schedule-list", SCHEDULES, "no longer in the code"),
        ("schedule", url_of("remind Ada"), "Positional arguments"),
        ("schedule-add", f"{SCHEDULES}add/", "Dotted path of a task"),
        ("queue-list", QUEUES, "Ada"),
        ("channel-list", CHANNELS, "payment-api"),
        ("channel", f"{CHANNELS}payment-api/change/", "Max concurrency"),
        ("exchange", f"{ORDERS}?routing_key=order.created", "books"),
        ("exchange-list", ORDERS.removesuffix("orders/change/"), "orders"),
        ("binding-list", BINDINGS, "(regular expression)"),
        ("binding-add", f"{BINDINGS}add/", "Pattern"),
        ("edit-list", EDITS, "0 edits"),
    ]:
        page.open(url)
        page.shows(text)
        looked_at(page, name)
    page.open(f"{MESSAGES}{waits}/change/")
    page.press("Run now…")
    page.shows("2 have not ended yet", "If you run it now")
    looked_at(page, "message-run-now")


@pytest.mark.usefixtures("settled_by_people")
def test_the_lists_fit_a_window_of_1440_pixels_and_a_phone_with_their_errors(page: browser.Page) -> None:
    script = """
        const list = document.querySelector(".results, .pgqueue-scroll:has(.pgqueue-overview-table)");
        return list.scrollWidth - list.clientWidth + Math.max(0, document.documentElement.scrollWidth - innerWidth);
    """
    hidden = {}
    control.edit("move", control.Filter(queue="mail", task_contains="send"), queue="slow", by="Ada")
    for url, text in [
        (MESSAGES, "The courier's line is busy"),
        (ATTEMPTS, "The voucher TEA-2019"),
        (SCHEDULES, "remind Ada"),
        (WORKERS, "worker-web2-23"),
        (BINDINGS, "order.#"),
        (CHANNELS, "payment-api"),
        (QUEUES, "mail"),
        (EDITS, "Ada"),
        (OVERVIEW, "warehouse"),
    ]:
        for language in ("en", "de"):
            with override_settings(LANGUAGE_CODE=language):
                page.open(url)
            page.shows(text)
            assert page.driver.execute_script("return document.documentElement.lang") == language
            for pixels in (WIDE, NARROW):
                viewport = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
                hidden[url, language, pixels] = page.driver.execute_script(script)
                page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not any(hidden.values()), hidden


def test_names_without_a_place_to_break_move_nothing_sideways(page: browser.Page) -> None:
    name = "W" * 200
    by_hand(name)
    pk = send(task=name, queue=name)
    send(queue="mail", task=name)
    fail(claim("mail")[0], ValueError(name))
    control.pause(name, by=name)
    scroll = """
        const boxes = [...document.querySelectorAll(".pgqueue-scroll"), document.documentElement];
        return Math.max(...boxes.map(box => box.scrollWidth - box.clientWidth));
    """
    hidden = {}
    for url in (OVERVIEW, f"{MESSAGES}{pk}/change/", f"{ATTEMPTS}errors/"):
        for pixels in (WIDE, NARROW):
            viewport = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
            page.open(url)
            hidden[url, pixels] = page.driver.execute_script(scroll)
            page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not any(hidden.values()), hidden


def test_cells_keep_apart_in_a_theme_without_a_style_for_tables(page: browser.Page) -> None:
    sign_in()
    roll_up(timezone.now(), succeeded=2)
    script = """
        for (const sheet of document.styleSheets) sheet.disabled = !sheet.href.includes("/pgqueue/");
        const tables = [...document.querySelectorAll(".pgqueue-scroll > table")];
        const isNarrow = cell => parseFloat(getComputedStyle(cell).paddingLeft) < 5;
        const narrow = table => [...table.querySelectorAll("th, td")].filter(isNarrow);
        return tables.map(table => [table.parentElement.ariaLabel, narrow(table).length]);
    """
    page.open(OVERVIEW)
    assert page.driver.execute_script(script) == [["Workers", 0], ["Queues", 0], ["Tasks of the last hour", 0]]


def test_the_button_that_confirms_looks_like_one_in_a_theme_without_a_style_for_it(page: browser.Page) -> None:
    script = """
        for (const sheet of document.styleSheets) sheet.disabled = !sheet.href.includes("/pgqueue/");
        return getComputedStyle(document.querySelector("[name=confirmed]")).backgroundColor;
    """
    page.open(f"{MESSAGES}edit/")
    assert page.driver.execute_script(script) == "rgb(65, 118, 144)"


def test_times_and_units_keep_their_order_from_right_to_left(page: browser.Page) -> None:
    pk = send()
    script = """
        const found = document.createTreeWalker(document.querySelector(arguments[0]), NodeFilter.SHOW_TEXT).nextNode();
        const [first, last] = [0, found.length - 1].map(place => {
            const range = document.createRange();
            range.setStart(found, place);
            range.setEnd(found, place + 1);
            return range.getBoundingClientRect().left;
        });
        return [document.documentElement.dir, found.data, first < last];
    """
    with override_settings(LANGUAGE_CODE="ar"):
        page.open(OVERVIEW)
        direction, text, is_ordered = page.driver.execute_script(script, "[data-label='Oldest']")
        assert direction == "rtl"
        assert text.strip().endswith("s"), text
        assert is_ordered, text
        page.open(f"{MESSAGES}{pk}/change/")
        assert page.driver.execute_script(script, ".readonly time")[2]
        roll_up(timezone.now(), succeeded=1, wait_ms=5_000)
        page.open(INSIGHTS)
        assert page.driver.execute_script(script, ".pgqueue-numbers div:last-child dd")[2]
        assert page.driver.execute_script(script, "figcaption")[2]
        [label, grid] = page.driver.execute_script("""
            const chart = document.querySelector(".pgqueue-chart svg");
            const [label, grid] = [chart.querySelector("text"), chart.querySelector(".pgqueue-grid")];
            return [label.getBoundingClientRect().right, grid.getBoundingClientRect().left];
        """)
        assert label < grid
        page.open(ATTEMPTS)
        links = "[...document.querySelectorAll('#changelist-filter a')]"
        page.driver.execute_script(f"{links}.find(one => one.innerText === '1 s to 10 s').id = 'seconds'")
        assert page.driver.execute_script(script, "#seconds")[2]
        page.open(f"{SCHEDULES}add/")
        aligned = "return getComputedStyle(document.querySelector('textarea')).textAlign"
        assert page.driver.execute_script(aligned) == "left", "JSON has indentation"


def test_a_card_on_a_phone_has_room_for_the_names_of_its_columns(page: browser.Page) -> None:
    control.set_channel("acme", max_concurrency=1)
    viewport = {"width": 375, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
    page.open(CHANNELS)
    page.shows("acme")
    height = "return document.querySelector(`[data-label='${arguments[0]}']`).offsetHeight"
    one, two = (page.driver.execute_script(height, name) for name in ("Running", "Release interval"))
    assert two > one, "a name of two lines"
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_phone_sorts_the_cards_of_a_list(page: browser.Page) -> None:
    first, last = send(), send()
    viewport = {"width": NARROW, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
    page.open(MESSAGES)
    page.shows(str(last), str(first))
    page.driver.execute_script("window.isOld = true")
    page.find("thead th.sortable .text a").click()
    page.shows(str(first), str(last))
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.usefixtures("queue")
def test_the_buttons_stand_below_the_one_of_django(page: browser.Page) -> None:
    """Whose place is another one from Django 6.1 on."""
    page.driver.set_window_size(WIDE, 1000)
    page.open(f"{MESSAGES}{Message.objects.get(task='shop.tasks.book_courier').pk}/change/")
    page.shows("Postpone…")
    place = "return document.querySelector(arguments[0]).getBoundingClientRect()"
    django_s, ours = (page.driver.execute_script(place, what) for what in (".object-tools a", ".pgqueue-buttons"))
    assert ours["top"] >= django_s["bottom"]


@pytest.mark.usefixtures("queue")
def test_the_way_back_looks_the_same_on_pages_of_ours_and_of_django(page: browser.Page) -> None:
    looks = set()
    for url in (MESSAGES, OVERVIEW, f"{ATTEMPTS}errors/", f"{ATTEMPTS}edit/"):
        page.open(url)
        page.find(".breadcrumbs a")
        colours = """
            const look = what => getComputedStyle(document.querySelector(what));
            const [all, link] = [look(".breadcrumbs"), look(".breadcrumbs a")];
            return [all.backgroundColor, all.color, all.padding, link.color].join(" ");
        """
        looks.add(page.driver.execute_script(colours))
    assert len(looks) == 1, looks


@pytest.mark.usefixtures("queue")
def test_the_overview_refreshes_while_its_tab_is_visible(page: browser.Page) -> None:
    page.open(OVERVIEW)
    quick(page)
    send(queue="brand-new")
    page.shows("brand-new")
    key = "document.querySelector('a[data-key]').dataset.key"
    focused = page.driver.execute_script(f"document.querySelector('a[data-key]').focus(); return {key}")
    send(queue="newer-still")
    page.shows("newer-still")
    assert page.driver.execute_script("return document.activeElement.dataset.key") == focused
    page.find("#pgqueue-live-switch").click()
    page.shows("Not refreshed any more.")
    assert page.find("#pgqueue-live-switch").get_attribute("aria-pressed") == "true"


def test_an_open_list_shows_progress_an_end_and_offers_new_rows(page: browser.Page) -> None:
    pk = send(task="shop.tasks.monthly_report")
    [received] = claim(lock_ms=HOUR_MS)
    page.open(MESSAGES)
    quick(page)
    page.driver.execute_script("window.isSame = true; document.querySelector('#result_list tbody a').focus()")
    functions.message_progress(connection, received, '{"fraction": 0.425, "text": "page 17 of 40"}')
    page.shows("page 17 of 40")
    focused = page.driver.execute_script("return document.activeElement.textContent")
    assert focused == str(pk)
    retry(received, ConnectionError("The line is busy"), dequeue_at=0)
    page.shows("The line is busy")
    [received] = claim()
    complete(received)
    page.shows("ended")
    assert page.find(".action-select").get_attribute("disabled")
    unnamed = "return document.querySelectorAll('#result_list tbody td.field-task:not([data-label])').length"
    assert page.driver.execute_script(unnamed) == 0
    send(task="shop.tasks.book_courier")
    page.shows("1 new: show")
    assert "book_courier" not in page.text
    assert page.driver.execute_script("return window.isSame"), "the page has been loaded again"
    page.find("#pgqueue-live-fresh").click()
    page.shows("book_courier")


def test_an_open_history_offers_a_new_failure(page: browser.Page) -> None:
    page.open(ATTEMPTS)
    quick(page)
    send()
    fail(claim()[0], expired())
    page.shows("1 new: show")
    page.find("#pgqueue-live-fresh").click()
    page.shows("The voucher TEA-2019 has expired")


def test_an_open_list_of_workers_shows_that_one_died(page: browser.Page) -> None:
    sign_in("worker-web1-4711")
    page.open(WORKERS)
    quick(page)
    page.shows("idle")
    sql("update pgqueue_worker set seen_at = now() - interval '5 min'")
    page.shows("1 changed", "not seen for 5 min")


def test_an_open_message_shows_progress_a_failure_and_its_end(page: browser.Page) -> None:
    pk = send(task="shop.tasks.monthly_report")
    [received] = claim(lock_ms=HOUR_MS)
    page.open(f"{MESSAGES}{pk}/change/")
    quick(page)
    page.driver.execute_script("window.isSame = true")
    functions.message_progress(connection, received, '{"fraction": 0.425, "text": "page 17 of 40"}')
    page.shows("page 17 of 40")
    retry(received, ConnectionError("The line is busy"), dequeue_at=0)
    page.shows("More has changed: show", "The line is busy")
    [received] = claim()
    complete(received)
    page.shows("It is not here any more: show")
    assert page.driver.execute_script("return window.isSame"), "the page has been loaded again"
    page.find("#pgqueue-live-fresh").click()
    page.shows("attempts in the history")


def test_an_open_message_keeps_what_somebody_writes(page: browser.Page) -> None:
    pk = send(dequeue_at=2**50)
    page.open(f"{MESSAGES}{pk}/change/")
    quick(page)
    field = page.find("#id_priority")
    field.clear()
    field.send_keys("7")
    sql("update pgqueue_message set last_error = 'a new error' where id = %s", pk)
    page.shows("a new error")
    assert field.get_attribute("value") == "7"
    assert page.driver.execute_script("return document.activeElement.id") == "id_priority"


def test_an_open_worker_and_an_open_schedule_show_what_happened(page: browser.Page) -> None:
    sign_in("worker-web1-4711")
    page.open(f"{WORKERS}worker-web1-4711/change/")
    quick(page)
    page.shows("idle")
    sql("update pgqueue_worker set seen_at = now() - interval '5 min'")
    page.shows("not seen for 5 min")
    by_hand("nightly", cron="0 9 * * mon")
    page.open(url_of("nightly"))
    quick(page)
    page.shows("late")
    page.find("#id_queue").send_keys("-of-tonight")
    control.pause_schedule("nightly")
    page.shows("paused")
    assert str(page.find("#id_queue").get_attribute("value")).endswith("-of-tonight")


def test_an_open_list_stays_as_it_is_while_rows_are_selected(page: browser.Page) -> None:
    send()
    page.open(MESSAGES)
    quick(page)
    page.find("#result_list .action-select").click()
    claim()
    page.shows("Not refreshed while rows are selected.", "ready")
    assert "running" not in page.find("#result_list").text
    assert page.find("#result_list .action-select").is_selected()
    page.find("#result_list .action-select").click()
    page.shows("running")


def test_a_site_that_does_not_answer_is_told(page: browser.Page) -> None:
    page.open(OVERVIEW)
    page.driver.execute_script("""
        const answered = window.fetch;
        const never = (signal) => new Promise((_, refuse) => signal.onabort = () => refuse(signal.reason));
        window.fetch = (url, {signal}) => never(signal);
        window.answer = () => window.fetch = answered;
    """)
    quick(page)
    page.shows("The numbers could not be refreshed. Trying again.")
    page.driver.execute_script("window.answer()")
    send(queue="brand-new")
    page.shows("brand-new")


@pytest.mark.usefixtures("queue")
def test_a_hidden_tab_sends_no_requests(page: browser.Page) -> None:
    page.open(OVERVIEW)
    quick(page)
    wait_until(lambda: asked(page) > 0, "it asks")
    hide = "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))"
    page.driver.execute_script(hide, True)
    # What was on its way has come back when another request, made after it, has.
    page.driver.execute_async_script("fetch(arguments[0]).then(() => arguments[1]())", f"{OVERVIEW}live/?mine")
    before = asked(page)
    page.driver.execute_async_script("setTimeout(arguments[0], 500)")
    assert asked(page) == before
    page.driver.execute_script(hide, False)
    wait_until(lambda: asked(page) > before, "it asks again")


def quick(page: browser.Page) -> None:
    """Time goes a hundred times as fast for the page: five seconds are a wink."""
    page.driver.execute_script("""
        const slow = window.setTimeout;
        window.setTimeout = (work, ms) => slow(work, ms > 1000 ? ms / 100 : ms);
        document.getElementById("pgqueue-live-switch").click();
        document.getElementById("pgqueue-live-switch").click();
    """)


def asked(page: browser.Page) -> int:
    script = "return performance.getEntriesByType('resource').filter(e => e.name.endsWith('/live/')).length"
    return int(page.driver.execute_script(script))


@pytest.fixture
def report(transactional_db: None) -> None:
    """Two days of a shop."""
    for number in range(48):
        busy = 40 + int(30 * math.sin(number / 4))
        slow = 400 + 20 * number
        hour(
            number,
            enqueued=busy + 4,
            succeeded=busy,
            retried=busy // 8,
            failed=busy // 20,
            lost=number % 17 == 3,
            messages=busy,
            message_attempts=busy + busy // 8,
            sla_misses=busy // 10,
            waits={20: busy, 900: busy // 8, slow: busy // 20},
            runs={150: busy, 1200: busy // 10},
        )
        hour(
            number,
            task="shop.tasks.monthly_report",
            queue="reports",
            succeeded=2,
            messages=2,
            runs={60_000: 2},
            waits={5: 2},
        )
        ReportQueue.objects.create(
            hour=NOON + dt.timedelta(hours=number),
            queue="mail",
            depth=busy // 3,
            depth_max=busy,
            running=busy / 30,
            running_max=4,
            slots=4,
        )
    ReportError.objects.create(
        hour=NOON, queue="mail", task="shop.tasks.send_receipt", error_class="shop.couriers.LineIsBusy", attempts=17
    )


WORDS_OF_CHARTS = """
    return [...document.querySelectorAll(".pgqueue-chart svg")].flatMap(chart => {
        const boxes = [...chart.querySelectorAll("text")].map(text => text.getBoundingClientRect());
        const frame = chart.getBoundingClientRect().left;
        return boxes.filter(box => box.width).map(({left, right, bottom}) => [frame, left, right, bottom]);
    });
"""


@pytest.mark.usefixtures("report")
def test_insights_are_readable_and_fit_a_narrow_screen(page: browser.Page) -> None:
    page.open(INSIGHTS)
    page.shows("started too late", "Throughput", "shop.couriers.LineIsBusy")
    looked_at(page, "insights")
    words = narrow(page, WORDS_OF_CHARTS)
    assert all(chart < left for chart, left, _, _ in words), "none is cut"
    neighbours = [(one, other) for one, other in itertools.pairwise(words) if one[3] == other[3]]
    assert len(neighbours) >= 6
    assert all(one[2] + 10 < other[1] for one, other in neighbours), "the times stand apart"


def width(page: browser.Page) -> int:
    """The width of the page on a narrow screen: nothing but tables has to be moved sideways."""
    return int(narrow(page, "return document.documentElement.scrollWidth"))


def narrow(page: browser.Page, script: str) -> Any:
    viewport = {"width": NARROW, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
    found = page.driver.execute_script(script)
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


def test_the_page_of_an_edit_follows_it_to_its_end(page: browser.Page) -> None:
    for _ in range(3):
        send(queue="bulk")
    edit = control.edit("cancel", control.Filter(queue="bulk"), by="Ada")
    page.open(f"{EDITS}{edit}/change/")
    quick(page)
    page.shows("waits", "0 done", "queue bulk", "Ada")
    while functions.edit_step(connection) is not None:
        pass
    page.shows("More has changed: show", "finished", "3 done")


def test_a_double_click_enqueues_once(page: browser.Page, chromium: webdriver.Chrome) -> None:
    send()
    fail(claim()[0])
    page.open(f"{ATTEMPTS}{Attempt.objects.get().pk}/change/")
    button = page.find("//button[normalize-space()='Enqueue again']", By.XPATH)
    webdriver.ActionChains(chromium).double_click(button).perform()
    page.shows("1 message enqueued again")
    wait_until(lambda: not under_way, "the last answer")
    assert Message.objects.count() == 1
    page.open(f"{ATTEMPTS}{Attempt.objects.get().pk}/change/")
    page.press("Enqueue again")
    page.shows("1 message enqueued again")
    assert Message.objects.count() == 2, "twice on purpose"


def test_an_action_whose_answer_is_a_file_can_be_chosen_again(page: browser.Page) -> None:
    send()
    asked: list[object] = []

    def save(model_admin: object, request: HttpRequest, queryset: object) -> HttpResponse:
        asked.append(queryset)
        return HttpResponse("a file", headers={"Content-Disposition": "attachment; filename=a.txt"})

    admin.site.add_action(save, "save")
    try:
        page.open(MESSAGES)
        page.find(".action-select").click()
        page.find("select[name=action] option[value=save]").click()
        button = page.find("button[name=index]")
        wait_until(lambda: (button.click(), len(asked) > 1)[1], "the second file")  # type: ignore[func-returns-value]
    finally:
        admin.site.disable_action("save")
        del admin.site._global_actions["save"]


def test_a_double_click_decides_once(page: browser.Page, chromium: webdriver.Chrome) -> None:
    ask(permission=None)
    page.open(f"{MESSAGES}approvals/")
    button = page.find("//button[normalize-space()='Approve']", By.XPATH)
    webdriver.ActionChains(chromium).double_click(button).perform()
    page.shows("was approved")
    wait_until(lambda: not under_way, "the last answer")
    assert "decided before" not in page.text


def test_enter_in_the_comment_decides_nothing(page: browser.Page) -> None:
    ask(permission=None)
    page.open(f"{MESSAGES}approvals/")
    page.find("input[name=comment]").send_keys("too dear", Keys.ENTER)
    page.press("Reject")
    page.shows("was rejected")
    assert Approval.objects.get().comment == "too dear"


@pytest.mark.usefixtures("settled_by_people")
def test_the_lists_fit_a_window_of_1280_pixels(page: browser.Page, chromium: webdriver.Chrome) -> None:
    chromium.set_window_size(1280, 900)
    # As those are named that the code declares.
    by_hand("shop.tasks.close_the_books", cron="30 2 * * mon-fri", timezone="Europe/Berlin")
    script = """
        for (const took of document.querySelectorAll(".field-took")) took.textContent = "59 min 59 s";
        const list = document.querySelector(".results");
        return list.scrollWidth - list.clientWidth;
    """
    hidden = {}
    for url, language in [(MESSAGES, "en"), (ATTEMPTS, "en"), (SCHEDULES, "en"), (SCHEDULES, "de"), (BINDINGS, "de")]:
        with override_settings(LANGUAGE_CODE=language):
            page.open(url)
        hidden[url, language] = page.driver.execute_script(script)
    assert not any(hidden.values()), hidden


def test_a_long_name_leaves_the_other_columns_in_sight(page: browser.Page, chromium: webdriver.Chrome) -> None:
    chromium.set_window_size(1280, 900)
    control.pause("n" * 250, by="Ada")
    control.set_channel("n" * 250, max_concurrency=1)
    for url in (QUEUES, CHANNELS):
        page.open(url)
        right = "return document.querySelector('#result_list').getBoundingClientRect().right"
        assert chromium.execute_script(right) <= 1280, url
