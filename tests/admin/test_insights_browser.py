"""Insights in Chromium: light, dark and narrow."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import ReportError, ReportQueue
from tests.admin import test_browser as admin
from tests.admin.test_insights import INSIGHTS, NOON, hour

if TYPE_CHECKING:
    from tests.support.fixtures import browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]
chromium, page = admin.chromium, admin.page


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


@pytest.mark.usefixtures("report")
def test_insights_are_readable_and_fit_a_narrow_screen(page: browser.Page) -> None:
    page.open(INSIGHTS)
    page.shows("started too late", "Throughput", "shop.couriers.LineIsBusy")
    admin.looked_at(page, "insights")
    assert width(page) <= admin.NARROW


def width(page: browser.Page) -> int:
    """Of the page on a narrow screen: nothing but tables has to be moved sideways."""
    viewport = {"width": admin.NARROW, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
    found = int(page.driver.execute_script("return document.documentElement.scrollWidth"))
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found
