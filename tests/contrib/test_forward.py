"""What waits in Celery's broker after the change of the import: the forwarder of the page enqueues it here."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("celery", reason="celery is installed beside Django 5.2", exc_type=ImportError)

from celery import Celery

from django_pgqueue.testing import drain
from tests.support.from_celery import note, seen
from tests.support.pages import FOLDER, blocks


@pytest.mark.django_db
def test_celery_knows_the_old_name_and_the_forwarder_enqueues_here() -> None:
    seen.clear()
    [forwarder] = [block for block in blocks(FOLDER / "move" / "celery.md") if "def forward_" in block.text]
    names: dict[str, Any] = {"send_letter": note}
    exec(forwarder.text, names)  # noqa: S102 -- the text of the page
    celery = Celery("shop", set_as_current=False, fixups=[])
    celery.tasks["shop.tasks.send_letter"].apply([7], {"word": "waits"}, throw=True)
    assert not seen
    drain()
    assert seen == [((7,), {"word": "waits"})]
