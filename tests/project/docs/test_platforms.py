"""The page of platforms says what the queue needs: each row is in the code, and what it calls not needed is not."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT, section

ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
NEEDED = ROW.findall(section("operate/platforms", "What the queue needs"))
SQL = sorted((ROOT / "sql").glob("*/*.sql"))
NOT_NEEDED = ("create extension", "superuser", "replication", "create temp", "alter system")


@pytest.mark.parametrize(("feature", "path"), NEEDED, ids=[feature for feature, _ in NEEDED])
def test_a_needed_feature_is_used_in_the_code(feature: str, path: str) -> None:
    assert feature in (ROOT / path).read_text(encoding="utf-8").lower()


ROWS = [
    (title, row)
    for title in ("PostgreSQL as a service", "Poolers", "Other databases")
    for row in re.findall(r"^\| (\*\*.+) \|$", section("operate/platforms", title), re.MULTILINE)
]


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[row.split("**")[1] for _, row in ROWS])
def test_each_platform_has_a_source(row: str) -> None:
    name, works, _, source = row.split(" | ")
    assert re.match(r"\*{0,2}(yes|no|not tried)\b", works), f"{name}: does it work?"
    assert re.search(r"\[[^]]+\]\(https://[^)]+\)", source), f"{name} has no source"


def test_the_tables_of_the_page_were_found() -> None:
    assert len(NEEDED) > 15
    found = {title: sum(of == title for of, _ in ROWS) for title, _ in ROWS}
    assert found == {"PostgreSQL as a service": 8, "Poolers": 8, "Other databases": 5}


@pytest.mark.parametrize("words", NOT_NEEDED)
def test_a_feature_that_is_not_needed_is_in_no_function_or_table(words: str) -> None:
    def statements(text: str) -> str:
        return re.sub(r"--.*", "", text).lower()

    assert [path.name for path in SQL if words in statements(path.read_text(encoding="utf-8"))] == []
