"""What waits in Celery's broker after the change of the import: the forwarder of the page enqueues it here."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("celery", reason="celery is installed beside Django 5.2", exc_type=ImportError)

from celery import Celery
from django.db import OperationalError
from kombu.serialization import dumps, loads

from django_pgqueue.testing import drain
from tests.support.from_celery import note, seen
from tests.support.pages import FOLDER, blocks

pytestmark = pytest.mark.django_db


@cache
def page() -> tuple[dict[str, Any], Any]:
    """Returns the names of the page, and Celery's task.  Once: Celery keeps the first task of a name."""
    [forwarder] = [block for block in blocks(FOLDER / "move" / "celery.md") if "def forward_" in block.text]
    names: dict[str, Any] = {}
    exec(forwarder.text, names)  # noqa: S102 -- the text of the page
    return names, Celery("shop", set_as_current=False, fixups=[]).tasks["shop.tasks.send_letter"]


def forward(send_letter: Any, *args: Any, **kwargs: Any) -> None:
    """Runs the forwarder with what Celery makes of a message."""
    seen.clear()
    names, task = page()
    names["send_letter"] = send_letter
    kind, encoding, body = dumps([args, kwargs], serializer="json")
    args, kwargs = loads(body, kind, encoding)
    task.apply(args, kwargs).get()
    assert not seen
    drain()


def test_celery_knows_the_old_name_and_the_forwarder_enqueues_here() -> None:
    forward(note, 7, word="waits")
    assert seen == [((7,), {"word": "waits"})]


def test_what_celery_gives_back_as_an_object_is_text() -> None:
    noon = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
    forward(note, noon, Decimal("1.50"), by=UUID(int=7), on=noon.date())
    [(args, kwargs)] = seen
    assert args == ("2026-11-30 12:00:00+00:00", "1.50")
    assert kwargs["by"] == "00000000-0000-0000-0000-000000000007"
    assert kwargs["on"].startswith("2026-11-30")


def test_a_message_is_forwarded_again_when_postgresql_was_away() -> None:
    refusals = [OperationalError("away"), OperationalError("still away")]

    def delay(*args: Any, **kwargs: Any) -> None:
        if refusals:
            raise refusals.pop()
        note.delay(*args, **kwargs)

    forward(SimpleNamespace(delay=delay), 7)
    assert seen == [((7,), {})]
