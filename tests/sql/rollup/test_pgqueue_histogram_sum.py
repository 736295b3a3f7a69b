"""Histograms are added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Session

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [("{}", "{}", {}), ('{"-3": 1, "5": 2}', '{"5": 3}', {"-3": 1, "5": 5}), ("{}", '{"7": 1}', {"7": 1})],
)
def test_counts_of_a_bucket_are_added_up(session: Session, one: str, other: str, both: dict[str, int]) -> None:
    assert session.one("select pgqueue_histogram_sum(%s::jsonb, %s::jsonb)", [one, other]) == both
