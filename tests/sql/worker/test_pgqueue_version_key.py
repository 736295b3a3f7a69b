"""The order of the versions of deploys."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.values.versions import is_version, key

if TYPE_CHECKING:
    from tests.support.sessions import Session

IN_ORDER = [
    "0.9", "1", "1.0", "1.0.1", "2", "9", "10", "10-rc1", "10.1", "2024.9", "2024.9.1", "2024.10.1",
    "2024.10.1+a1", "2024.10.1+a10", "20241001", "20241001-9", "20241001-10", "a", "build 9", "build 10", "v1", "ä",
]  # fmt: skip


def sorted_by_sql(session: Session, versions: list[str]) -> list[str]:
    rows = session.rows(
        'select v from unnest(%(versions)s::text[]) as v order by pgqueue_version_key(v) collate "C", v collate "C"',
        {"versions": versions},
    )
    return [row[0] for row in rows]


def test_numbers_are_compared_as_numbers(session: Session) -> None:
    shuffled = IN_ORDER[:]
    random.Random(1).shuffle(shuffled)
    assert sorted_by_sql(session, shuffled) == IN_ORDER


def test_python_has_the_same_order(session: Session) -> None:
    dice = random.Random(2)
    letters = "0019.-+ vß~"
    versions = {"".join(dice.choices(letters, k=dice.randint(1, 12))) for _ in range(2000)} | set(IN_ORDER)
    rows = session.rows(
        "select v, pgqueue_version_key(v) from unnest(%(versions)s::text[]) as v", {"versions": sorted(versions)}
    )
    assert {row[0]: row[1] for row in rows} == {version: key(version) for version in versions}


def test_no_version_has_no_key(session: Session) -> None:
    assert session.value("pgqueue_version_key", version=None) is None


@pytest.mark.parametrize(
    ("value", "possible"),
    [
        ("1", True),
        ("v 1", True),
        ("x" * 100, True),
        ("x" * 101, False),
        ("", False),
        (1, False),
        (None, False),
        ("a\n", False),
    ],
)
def test_only_valid_versions_are_accepted(value: object, possible: bool) -> None:
    assert is_version(value) is possible
