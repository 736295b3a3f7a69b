"""The pages in Chromium, under a policy that allows nothing but files of the site itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import Client, override_settings
from pytest_django.live_server_helper import LiveServer

from django_pgqueue.models import Attempt, Message
from tests.admin.conftest import ATTEMPTS, MESSAGES, WORKERS, claim, complete, fail, retry, send, sign_in, sql
from tests.example import test_browser as shop
from tests.example.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest, HttpResponse
    from selenium import webdriver

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]

HOUR_MS = 3_600_000
NARROW, WIDE = 400, 1600

chromium = shop.chromium


def only_from_here(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return answer


@pytest.fixture
def page(chromium: webdriver.Chrome, django_user_model: type, transactional_db: None) -> Iterator[shop.Page]:
    """The window of somebody who is logged in."""
    middleware = ["tests.admin.test_browser.only_from_here", *settings.MIDDLEWARE]
    with override_settings(MIDDLEWARE=middleware):
        server = LiveServer("127.0.0.1")
        page = shop.Page(chromium, server.url)
        client = Client()
        client.force_login(django_user_model.objects.create_superuser("root"))  # type: ignore[attr-defined]
        page.open("/static/pgqueue/admin.css")
        chromium.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value})
        yield page
        assert not page.complaints()
        server.stop()


@pytest.fixture
def queue(transactional_db: None) -> None:
    """Something of everything."""
    sign_in("worker-web1-4711", ["default", "mail"], slots=8)
    sign_in("worker-web2-23", None, ("slow",), asleep_ms=60_000)
    send(task="shop.tasks.book_courier")
    for _ in range(2):
        retry(claim()[0], ConnectionError("The courier's line is busy: <please> call again later"), dequeue_at=0)
    send(queue="mail")
    fail(claim("mail")[0], ValueError("The voucher TEA-2019 has expired"))
    for _ in range(3):
        send(queue="mail", channel="tenant-1")
        complete(claim("mail")[0], '{"sent": true}')
    send(queue="expired", task="shop.tasks.crashed")
    claim("expired", lock_ms=-1)
    for _ in range(3):
        send(task="shop.tasks.send_reminder", delay_ms=HOUR_MS, priority=10)
    send(
        '{"args": ["2026-01"], "kwargs": {"deep": [1, {"two": null}]}}', queue="slow", task="shop.tasks.monthly_report"
    )
    send('{"parcel": 7}', task=None, queue="warehouse")
    send(dequeue_at=-(2**63), task="<script>alert(1)</script>")
    sql(
        "insert into pgqueue_message (dequeue_at, content, queue, unlock_at, locked_at, worker) "
        "values (0, '{}', 'mail', pgqueue_now() + 60000, now(), 'worker-web1-4711')"
    )


def looked_at(page: shop.Page, name: str) -> None:
    page.save(f"admin-{name}", WIDE)
    page.save(f"admin-{name}-dark", WIDE, dark=True)
    page.save(f"admin-{name}-narrow", NARROW)


@pytest.mark.usefixtures("queue")
def test_the_pages_look_decent_in_light_and_dark_and_on_narrow_screens(page: shop.Page) -> None:
    courier = Message.objects.get(task="shop.tasks.book_courier").pk
    slow = Message.objects.get(queue="slow").pk
    failed = Attempt.objects.get(status="failed").pk
    for name, url, text in [
        ("message-list", MESSAGES, "no worker"),
        ("message", f"{MESSAGES}{courier}/change/", "The courier's line is busy"),
        ("message-without-worker", f"{MESSAGES}{slow}/change/", "manage.py qworker --queues slow"),
        ("attempt-list", ATTEMPTS, "ValueError: The voucher TEA-2019 has expired"),
        ("attempt", f"{ATTEMPTS}{failed}/change/", "The voucher TEA-2019 has expired"),
        ("worker-list", WORKERS, "all but slow"),
    ]:
        page.open(url)
        page.shows(text)
        looked_at(page, name)


@pytest.mark.usefixtures("queue")
def test_a_range_of_days_is_chosen_in_the_filter_and_cleared_again(page: shop.Page) -> None:
    page.open(f"{MESSAGES}?queue=default")
    before = rows(page)
    fill = "document.querySelector('[name=dequeue_at__range__lte_0]').value = '1970-12-31'"
    page.driver.execute_script(fill)
    page.driver.execute_script("window.isOld = true")
    page.find("[data-filter-title='dequeue at'] input[type=submit]").click()
    wait_until(lambda: not page.driver.execute_script("return window.isOld"), "the filtered list")
    assert page.find("[name=dequeue_at__range__lte_0]").get_attribute("value") == "1970-12-31"
    assert rows(page) < before
    assert "queue=default" in page.driver.current_url
    page.save("admin-filtered", WIDE)
    page.find("[data-filter-title='dequeue at'] form a").click()
    wait_until(lambda: rows(page) == before, "the whole list again")


def rows(page: shop.Page) -> int:
    return int(page.driver.execute_script("return document.querySelectorAll('#result_list tbody tr').length"))


@pytest.mark.usefixtures("queue")
def test_messages_are_selected_and_cancelled(page: shop.Page) -> None:
    page.open(MESSAGES)
    page.find("#action-toggle").click()
    selected = rows(page)
    page.driver.execute_script("document.querySelector('select[name=action]').value = 'cancel'")
    page.driver.execute_script("window.isOld = true")
    page.find(".actions button[type=submit]").click()
    page.shows(f"Cancel {selected} messages?")
    looked_at(page, "cancel")
    page.press("Cancel them")
    page.shows(f"{selected - 1} messages cancelled.", "1 message asked to stop.")
    looked_at(page, "cancelled")
    assert [message.queue for message in Message.objects.all()] == ["mail"]
