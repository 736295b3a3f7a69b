"""The pages of channels in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.control import release_channel, set_channel
from django_pgqueue.models import Channel
from tests.admin.test_browser import chromium, looked_at, page
from tests.admin.test_channel import CHANNELS
from tests.support.fixtures.admin import claim, send

if TYPE_CHECKING:
    from tests.support.fixtures import browser

__all__ = ["chromium", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


@pytest.fixture
def tenants(transactional_db: None) -> None:
    set_channel("tenant-acme", max_concurrency=2, max_size=10_000)
    set_channel("payment-api", max_concurrency=5, release_interval=3600)
    for name, number in (("tenant-acme", 7), ("payment-api", 3), ("tenant-zoo", 2), ("old", 1)):
        for _ in range(number):
            send(channel=name)
    claim(limit=20)
    send(channel="tenant-zoo")
    release_channel("old")


@pytest.mark.usefixtures("tenants")
def test_limits_are_edited_in_the_browser_and_a_mistake_is_told(page: browser.Page) -> None:
    page.open(CHANNELS)
    page.shows("released", "tenant-acme", "2 of 2")
    looked_at(page, "channel-list")
    page.open(f"{CHANNELS}tenant-acme/change/")
    limit = page.find("[name=max_concurrency]")
    limit.clear()
    limit.send_keys("-5")
    page.press("Save")
    assert Channel.objects.get(pk="tenant-acme").max_concurrency == 2
    limit = page.find("[name=max_concurrency]")
    limit.clear()
    limit.send_keys("5")
    looked_at(page, "channel")
    page.press("Save")
    page.shows("2 of 5")
    assert Channel.objects.get(pk="tenant-acme").max_concurrency == 5
