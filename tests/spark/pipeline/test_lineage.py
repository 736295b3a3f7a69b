"""A position says which rows a table has, and Delta's restore moves only the rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from django_pgqueue.spark.lake.lineage import last_whole, mark_of_rows
from django_pgqueue.spark.lake.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "ours"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Versions 0 to 3 of a table: after the first one, a run of ours each."""
    place = str(tmp_path / "50% of")
    append(place, 0, CommitProperties())
    for position in (1, 2, 3):
        append(place, position)
    return place


def append(url: str, position: int, about: CommitProperties | None = None) -> None:
    about = about or CommitProperties(app_transactions=[Transaction("theirs", 9), Transaction(MARK, position)])
    write_deltalake(url, pa.table({"id": [position]}), mode="append", commit_properties=about)


def found(url: str) -> tuple[int | None, int | None]:
    table = DeltaTable(url)
    return mark_of_rows(Place(url), table, MARK), last_whole(Place(url), table, MARK)


def vacuum(table: DeltaTable) -> object:
    return table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


LATER: dict[str, Callable[[DeltaTable], object]] = {
    "vacuum": vacuum,
    "optimize": lambda table: table.optimize.compact(),
    "delete": lambda table: table.delete("id = 1"),
    "widen": lambda table: table.alter.add_columns(Field("later", PrimitiveType("string"))),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_no_commit_after_a_restore_hides_it(url: str, later: Callable[[DeltaTable], object]) -> None:
    later(DeltaTable(url))
    whole = DeltaTable(url).version()
    assert found(url)[0] == 3
    DeltaTable(url).restore(2)
    later(DeltaTable(url))
    assert found(url) == (2, whole)


def test_the_last_version_with_the_rows_is_none_that_was_restored_itself(url: str) -> None:
    for version, position in ((2, 2), (1, 1), (4, 2), (0, None)):
        DeltaTable(url).restore(version)
        assert found(url) == (position, 3)
    DeltaTable(url).restore(3)
    assert found(url)[0] == 3
    append(url, 3)
    assert found(url)[0] == 3, "a run that had nothing to add"


def test_a_restore_to_a_time_or_to_what_the_log_has_forgotten_shows_no_rows(url: str) -> None:
    log = sorted(Path(url, "_delta_log").glob("*.json"))
    made = dt.datetime.fromtimestamp(log[1].stat().st_mtime, dt.UTC)
    DeltaTable(url).restore(made + dt.timedelta(microseconds=1000))
    assert found(url) == (None, 3)
    append(url, 4)
    assert found(url)[0] == 4
    DeltaTable(url).create_checkpoint()
    append(url, 5, CommitProperties())
    for path in Path(url, "_delta_log").glob("*[0-5].json"):
        path.unlink()
    assert found(url)[0] == 4, "the log begins later, and nothing was restored since"
    DeltaTable(url).restore(5)
    assert found(url) == (4, None), "its checkpoint says so"
    DeltaTable(url).create_checkpoint()
    for name in ("*5.checkpoint*", "*6.json"):
        for path in Path(url, "_delta_log").glob(name):
            path.unlink()
    assert found(url) == (None, None)
