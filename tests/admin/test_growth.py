"""Pages that an index serves cost the same when the tables have grown tenfold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.admin.conftest import sql
from tests.admin.cost import AT_MOST, SERVED, fill, measured, partitions, rare

if TYPE_CHECKING:
    from tests.admin.page import Visitor

pytestmark = pytest.mark.slow


@pytest.mark.django_db
def test_ten_times_the_rows_do_not_cost_more(root: Visitor) -> None:
    sql("truncate pgqueue_message, pgqueue_attempt")  # undone with the test
    partitions()
    rare()
    fill(21_000)
    small = {url: buffers(root, url) for url in SERVED}
    fill(190_000)
    large = {url: buffers(root, url) for url in SERVED}
    grown = {url: (small[url], large[url]) for url in SERVED if large[url] > max(1.3 * small[url] + 150, AT_MOST)}
    assert not grown, grown


def buffers(root: Visitor, url: str) -> int:
    with measured() as cost:
        root.open(url)
    assert not cost.scanned
    return cost.buffers
