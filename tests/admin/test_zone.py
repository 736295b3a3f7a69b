"""Each page with times says once in which time zone they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from django_pgqueue.models import Attempt, Message
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, claim, complete, send, sign_in

if TYPE_CHECKING:
    from tests.support.admin_page import Visitor

PAGES = "/admin/django_pgqueue/"
WITH_TIMES = (
    MESSAGES, ATTEMPTS, WORKERS, f"{ATTEMPTS}errors/", f"{ATTEMPTS}edit/?queue=default",
    *(f"{PAGES}{page}/" for page in ("overview", "schedule", "channel", "queuestate", "reporthour")),
)  # fmt: skip


@pytest.fixture
def rows(db: None) -> list[str]:
    """The pages of a row each."""
    sign_in("worker")
    send()
    complete(claim()[0])
    pk = send()
    own = [f"{MESSAGES}{pk}", f"{ATTEMPTS}{Attempt.objects.get().pk}", f"{WORKERS}worker"]
    return [f"{one}/{page}/" for one in own for page in ("change", "history")]


def test_pages_with_times_name_the_zone_once(root: Visitor, rows: list[str]) -> None:
    for url in (*WITH_TIMES, *rows):
        assert root.open(url).root.text.count("time zone UTC") == 1, url
    for page in ("exchange", "binding"):
        assert "time zone" not in root.open(f"{PAGES}{page}/").root.text


def test_it_is_the_zone_in_which_they_are_shown(root: Visitor, settings: Any) -> None:
    send()
    settings.TIME_ZONE = "Asia/Tokyo"
    page = root.open_with_all_columns(MESSAGES)
    assert "time zone Asia/Tokyo" in page.root.text
    created_at = Message.objects.get().created_at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert page.column("created at") == [f"{created_at:%Y-%m-%d %H:%M:%S}"]
