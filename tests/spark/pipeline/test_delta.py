"""The lake is a Delta table: other readers know its rows, and lakes of earlier releases become one."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import CommitFailedError

from django_pgqueue.spark.errors import SparkQueueError, told
from django_pgqueue.spark.lake import (
    DataFile,
    Lake,
    LakeConflict,
    LakeError,
    NotALake,
    OldLake,
    convert,
    read_lake,
    upkeep,
)
from django_pgqueue.spark.lake.convert import copy, put
from django_pgqueue.spark.lake.kept_columns import ALL, KeptColumns
from django_pgqueue.spark.lake.lake import OLD_MANIFESTS, REPORTED, create, files_of
from django_pgqueue.spark.lake.reading import StoredFilesReader
from django_pgqueue.spark.lake.schema import SCHEMAS
from django_pgqueue.spark.lake.upkeep import compact, erase
from django_pgqueue.spark.pipeline import Scenario, adopt, export, replay, report, whatif
from django_pgqueue.spark.pipeline.reporting import TABLES, reported_until
from django_pgqueue.spark.pipeline.source_database import Origin
from django_pgqueue.spark.schema import ATTEMPTS, arrow
from tests.spark.pipeline.conftest import ended
from tests.spark.pipeline.test_export import DAY, ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.pipeline.conftest import Add
    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_duckdb_polars_and_spark_read_the_rows_of_postgresql(
    spark: SparkSession, lake: Path, add: Add, connect: Connect
) -> None:
    session = connect()
    for _ in range(3):
        add(session, lake)
    compact(Lake.open(spark, lake), most=2)
    add(session, lake)
    assert read_lake(spark, lake, version=1).count() == 1, "what it was then"
    for version in (99, -1):
        with pytest.raises(LakeError, match="attempts cannot be read: "):
            read_lake(spark, lake, version=version)
    history = sorted((row.id, row.finished_at) for row in session.rows("select * from pgqueue_attempt"))
    seen = pl.read_delta(str(lake / "attempts")).select("id", "finished_at").sort("id").rows()
    assert seen == history
    attempts = DeltaTable(str(lake / "attempts")).to_pyarrow_dataset()
    query = "select id, epoch_us(finished_at) from attempts order by id"
    found = duckdb.connect().register("attempts", attempts).execute(query).fetchall()
    assert found == [(number, round(moment.timestamp() * 1e6)) for number, moment in history]
    assert ids(spark, lake) == [number for number, _ in history]


def test_a_lake_of_an_earlier_release_is_converted_once_and_goes_on(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session = connect()
    add(session, lake)
    as_of_an_earlier_release(Lake.open(spark, lake))
    for use in (lambda: read_lake(spark, lake), lambda: export(spark, lake, options=options)):
        with pytest.raises(OldLake, match="qpipeline convert --lake"):
            use()
    assert convert(spark, lake) == 1
    assert convert(spark, lake) == 0
    [_, sealed] = sorted((lake / "_pgqueue/manifests").iterdir())
    assert json.loads(sealed.read_text())["schema_version"] == 3, "earlier releases take it for a newer lake"
    ended(session)
    assert export(spark, lake, options=options).rows == 1
    history = [attempt.id for attempt in session.history()]
    assert ids(spark, lake) == history
    assert sorted(pl.read_delta(str(lake / "attempts"))["id"]) == history
    assert report(spark, lake, options=options).rows["report_hour"]


def test_of_two_conversions_at_a_time_one_is_told_and_the_lake_is_whole(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(connect(), lake, 2)
    history = ids(spark, lake)
    as_of_an_earlier_release(Lake.open(spark, lake))

    def created(*given: Any) -> DeltaTable:
        monkeypatch.undo()
        table = create(*given)
        assert convert(spark, lake) == 1
        return table

    monkeypatch.setattr(sys.modules[put.__module__], "create", created)
    with pytest.raises(LakeConflict, match="Another process writes this lake"):
        convert(spark, lake)
    assert ids(spark, lake) == history


def as_of_an_earlier_release(lake: Lake) -> None:
    version, place = lake.version(), lake.place / "attempts"
    files = []
    for file in version.files():
        old = file.path.replace("/", "/queue=x/")
        copy(place, file.path, old)
        place.files.delete_file(file.path)
        rows = {"rows": file.rows, "bytes": file.bytes}
        files.append({"path": f"attempts/{old}", "date": file.date.isoformat(), "queue": "x", **rows})
    manifest = {
        "format": "pgqueue-lake",
        "version": 7,
        "lake_id": version.lake_id,
        "schema_version": 1,
        "source": version.source,
        "position": str(version.position),
        "tables": {"attempts": files},
        "notes": {},
    }
    place.files.delete_dir("_delta_log")
    if lake.place.is_folder:
        lake.place.files.create_dir(OLD_MANIFESTS, recursive=True)
    put(lake.place / OLD_MANIFESTS, "000000000007.json", json.dumps(manifest).encode())


def test_of_reports_at_a_time_one_stays(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session = connect()
    add(session, lake)
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(report, spark, lake, options=options) for _ in range(2)]:
            run.result()
    for table in TABLES:
        rows = session.one(f"select count(*) from pgqueue_{table}")
        assert read_lake(spark, lake, table).count() == rows
        assert rows or table == "report_error"


def test_a_report_that_ends_before_postgresql_has_it_is_made_again(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session = connect()
    add(session, lake)
    session.rows("alter table pgqueue_report_error rename to pgqueue_report_away")
    try:
        with pytest.raises(psycopg.errors.UndefinedTable):
            report(spark, lake, options=options)
    finally:
        session.rows("alter table pgqueue_report_away rename to pgqueue_report_error")
    assert reported_until(Lake.open(spark, lake), dt.date.max) is None, "the next one begins at the first day again"


def test_days_out_of_reach_are_those_that_there_are_and_others_are_refused(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    today = dt.datetime.now(dt.UTC).date()
    add(connect(), lake)
    every: dict[str, Any] = {"since": dt.date.min, "until": dt.date.max}
    assert today <= report(spark, lake, options=options, **every).until <= today + dt.timedelta(days=1)
    assert read_lake(spark, lake, **every).count() == 1
    nowhere: dict[str, Any] = {"since": dt.date.max, "until": dt.date.min}
    for step in (
        lambda: report(spark, lake, options=options, **nowhere),
        lambda: replay(spark, lake, "true", options=options, **nowhere),
        lambda: whatif(spark, lake, [Scenario(slots=1)], **nowhere),
    ):
        with pytest.raises(LakeError, match=r"would end \(0001-01-01\) before (it begins|they begin) \(9999-12-31\)"):
            step()


def test_an_attempt_of_a_wrong_clock_does_not_end_the_reports(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    ended(session)
    session.rows("update pgqueue_attempt set finished_at = finished_at + interval '9 days'")
    ended(session)
    export(spark, lake, options=options)
    first = report(spark, lake, options=options)
    assert first.since == first.until == session.one("select (pgqueue_clock() at time zone 'UTC')::date")
    assert reported_until(Lake.open(spark, lake), dt.date.max) == first.until

    later = first.until + dt.timedelta(days=9)
    with monkeypatch.context() as earlier_release:
        earlier_release.setattr(Origin, "today", lambda _: later)
        assert report(spark, lake, options=options).until == later
    again = report(spark, lake, options=options)
    assert again == first, "all days, because the report of days to come was the last one"
    assert reported_until(Lake.open(spark, lake), dt.date.max) == first.until
    for name in TABLES[:2]:
        assert session.one(f"select max((hour at time zone 'UTC')::date) from pgqueue_{name}") == first.until
        days = {file.date for file in files_of(DeltaTable(str(lake / name)))}
        assert max(days) == first.until


def test_the_rows_of_one_person_are_erased_and_the_log_has_no_values(
    spark: SparkSession, lake: Path, add: Add, connect: Connect
) -> None:
    session = connect()
    for person in ("ann", "bob", "cem"):
        session.create({"to": f"{person}@example.org"}, queue="mail")
        session.rows("select pgqueue_message_cancel(array(select id from pgqueue_message))")
        add(session, lake)
    compact(Lake.open(spark, lake), most=1)
    [*kept, last] = ids(spark, lake)
    DeltaTable(lake / "attempts").create_checkpoint()
    position = Lake.open(spark, lake).version().position
    assert erase(Lake.open(spark, lake), f"id = {last}") == 1
    assert erase(Lake.open(spark, lake), "id = (select min(id) from attempts)") == 1
    assert ids(spark, lake) == kept[1:]
    files = {path.name for path in lake.glob("attempts/date=*/**/*.parquet")}
    assert files == {file.path.split("/")[-1] for file in Lake.open(spark, lake).version().files()}
    assert Lake.open(spark, lake).version().position == position
    add(session, lake)
    compact(Lake.open(spark, lake), most=1)
    assert ids(spark, lake)[:-1] == kept[1:]
    assert "example.org" not in log_of(lake / "attempts")


def log_of(table: Path) -> str:
    """All that the log says, in commits and checkpoints."""
    log = table / "_delta_log"
    checkpoints = [str(pq.read_table(path).to_pylist()) for path in log.glob("*.parquet")]
    return "".join([*checkpoints, *(path.read_text() for path in log.glob("*.json"))])


def test_erased_rows_do_not_stay_in_a_change_data_feed(
    spark: SparkSession, lake: Path, add: Add, connect: Connect
) -> None:
    add(connect(), lake, 2)
    table = DeltaTable(str(lake / "attempts"))
    for value, refused in (("true", pytest.raises(LakeError, match="keep a copy of the erased rows")), ("false", None)):
        table.alter.set_table_properties({"delta.enableChangeDataFeed": value}, raise_if_not_exists=False)
        with refused or nullcontext():
            assert erase(Lake.open(spark, lake), "true") == 2
    assert not (lake / "attempts" / "_change_data").exists()


def test_merges_and_erasures_go_on_when_another_erasure_has_deleted_their_files(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for _ in range(6):
        add(session, lake)
    left = ids(spark, lake)
    merging = Lake.open(spark, lake)

    def erase_one() -> None:
        assert erase(Lake.open(spark, lake), f"id = {left.pop(0)}") == 1

    meanwhile(monkeypatch, merging, erase_one)
    assert compact(merging, most=1) == 0

    def erase_first(table: DeltaTable, *days: Any) -> list[DataFile]:
        monkeypatch.undo()
        erase_one()
        return files_of(table, *days)

    monkeypatch.setattr(upkeep, "files_of", erase_first)
    assert compact(Lake.open(spark, lake), most=1) == 4
    for opening in (1, 2):  # of the query, and of the deletion
        slow = Lake.open(spark, lake)
        numbers = count(1)

        def opened(name: str, number: int | None = None) -> DeltaTable:
            table = Lake.opened(slow, name, number)  # noqa: B023
            if next(numbers) == opening:  # noqa: B023
                erase(Lake.open(spark, lake), f"id = {left.pop(0)}")
            return table

        monkeypatch.setattr(slow, "opened", opened)
        assert erase(slow, f"id = {left.pop()}") == 1
    assert ids(spark, lake) == left == []


def test_a_condition_that_is_none_erases_nothing_and_is_told(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    ended(connect())
    export(spark, lake, options=options)
    for condition in ("id = ", "id / 0 = 1", "no = 1"):
        with pytest.raises(LakeError, match=f"The condition '{condition}' cannot be used"):
            erase(Lake.open(spark, lake), condition)
    assert len(ids(spark, lake)) == 1


def test_a_column_of_a_later_release_comes_to_the_table(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, earlier = connect(), KeptColumns(names=ALL[:-1])
    with monkeypatch.context() as changed:
        for name, value in (("asked", lambda _: earlier), ("of", lambda _: earlier), ("settings", lambda _: {})):
            changed.setattr(KeptColumns, name, value)
        add(session, lake)
    assert ALL[-1] not in pl.read_delta(str(lake / "attempts")).columns
    session.create({}, queue="mail", headers={"trace": "1"})
    add(session, lake)
    values = [None, session.rows("select headers::text from pgqueue_attempt order by id desc")[0][0]]
    assert pl.read_delta(str(lake / "attempts")).sort("id")[ALL[-1]].to_list() == values
    assert [row[0] for row in read_lake(spark, lake).orderBy("id").select(ALL[-1]).collect()] == values
    opened = Lake.open(spark, lake)
    paths = [file.path for file in opened.version().files()]
    stored = StoredFilesReader(place=opened.place / "attempts", paths=paths, schema=arrow(ATTEMPTS))
    rows = [row for part in stored.partitions() for batch in stored.read(part) for row in batch.to_pylist()]
    assert [row[ALL[-1]] for row in sorted(rows, key=lambda row: row["id"])] == values, "as from an object store"


def test_a_table_that_was_restored_without_its_position_is_refused_until_its_rows_are_back(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session, lake = connect(), lake / "50% of"
    table = str(lake / "attempts")
    for _ in range(3):
        add(session, lake)
    every = ids(spark, lake)
    for version in (2, 1):
        DeltaTable(table).restore(version)
    DeltaTable(table).vacuum(dry_run=False)  # two commits
    ended(session)
    before = sorted(lake.rglob("*"))
    with pytest.raises(LakeError, match=r"/attempts to an earlier version, .* To go on, restore version 3, or let"):
        export(spark, lake, options=options)
    assert sorted(lake.rglob("*")) == before, "it was refused before it read and wrote"
    DeltaTable(table).restore(3)
    assert export(spark, lake, options=options).rows == 1
    assert ids(spark, lake)[:3] == every

    DeltaTable(table).restore(2)
    assert adopt(spark, lake, options=options).same == 2
    assert export(spark, lake, options=options).rows == 2
    assert ids(spark, lake) == [row.id for row in session.rows("select id from pgqueue_attempt order by id")]


def test_a_report_begins_where_a_table_ends_that_was_restored(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    add(connect(), lake)
    opened = Lake.open(spark, lake)
    report(spark, lake, options=options)
    until = reported_until(opened, dt.date.max)
    assert until is not None
    for name in TABLES:
        marks = {REPORTED: until.toordinal() + 9}
        opened.replace(name, DAY, DAY, arrow(SCHEMAS[name]).empty_table(), marks, dt.date.max)
    assert reported_until(opened, dt.date.max) == until + dt.timedelta(days=9)
    DeltaTable(str(lake / "report_queue")).restore(1)
    assert reported_until(opened, dt.date.max) == until
    DeltaTable(str(lake / "report_queue")).restore(0)
    assert reported_until(opened, dt.date.max) is None, "and all days are reported again"


@contextmanager
def configured(spark: SparkSession, **settings: str) -> Iterator[None]:
    """For as long as something runs; a setting is named without what they begin with."""
    names = {f"spark.sql.{name.replace('__', '.')}": value for name, value in settings.items()}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def test_files_are_read_as_they_were_written_whatever_the_session_says_about_those_of_others(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, old = connect(), dt.datetime(1582, 10, 4, 23, 59, 59, 999_999, dt.UTC)
    ended(session)
    session.rows("update pgqueue_attempt set created_at = %s", [old])
    ended(session)
    export(spark, lake, options=options)
    with configured(spark, parquet__datetimeRebaseModeInRead="LEGACY"):
        first = read_lake(spark, lake).selectExpr("min(unix_micros(created_at))").collect()[0][0]
    assert first == (old - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    [file] = (lake / "attempts").glob("date=*/*.parquet")
    whole = file.read_bytes()
    for settings, change in (
        ({"files__ignoreCorruptFiles": "true"}, lambda: file.write_bytes(whole[:-10])),
        ({"files__ignoreMissingFiles": "true"}, file.unlink),
    ):
        change()
        with configured(spark, **settings), pytest.raises(SparkQueueError), told():
            read_lake(spark, lake).collect()


def test_a_torn_commit_is_told_in_a_line_and_without_it_its_rows_come_again(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session = connect()
    add(session, lake, 2)
    add(session, lake, 2)
    last = max((lake / "attempts" / "_delta_log").glob("*.json"))
    last.write_bytes(last.read_bytes()[:-50])
    with pytest.raises(LakeError, match=r"attempts cannot be read: .*[Tt]runcated") as caught:
        export(spark, lake, options=options)
    assert "<unknown>" not in str(caught.value)
    last.unlink()
    assert export(spark, lake, options=options).rows == 2
    assert ids(spark, lake) == [row.id for row in session.rows("select id from pgqueue_attempt order by id")]


def test_a_table_that_is_not_ours_and_an_address_that_is_none_are_refused(spark: SparkSession, lake: Path) -> None:
    DeltaTable.create(str(lake / "attempts"), pl.DataFrame({"id": [1]}).to_arrow().schema)
    with pytest.raises(NotALake, match="did not make"):
        read_lake(spark, lake)
    Lake.open_or_new(spark, lake.parent / "ours").make(ATTEMPTS, {})
    ours = DeltaTable(str(lake.parent / "ours" / "attempts"))
    ours.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(LakeError, match=r"the feature deletionVectors of Delta, with which .* drop feature"):
        read_lake(spark, lake.parent / "ours")
    create(Lake.open_or_new(spark, lake.parent / "mixed").place / "attempts", ATTEMPTS, {"pgqueue.lake_id": "1"})
    DeltaTable.create(str(lake.parent / "mixed" / "steps"), pl.DataFrame({"id": [1]}).to_arrow().schema)
    with pytest.raises(NotALake, match="mixed/steps is a Delta table that django_pgqueue did not make"):
        Lake(spark, lake.parent / "mixed").table("steps")
    with pytest.raises(LakeError, match="begins with ~, which only a shell replaces"):
        read_lake(spark, "~/jobs")
    with pytest.raises(LakeError, match="and ftp://data/jobs is neither"):
        read_lake(spark, "ftp://data/jobs")


@pytest.mark.parametrize("path", ["{lake}/\udcff", "s3://data/\udcff", "file://{lake}/\udcff"])
def test_a_lake_in_the_settings_that_is_not_utf8_is_told(spark: SparkSession, lake: Path, path: str) -> None:
    with pytest.raises(LakeError, match=r"of a lake has no '\\udcff', as \S+/\\udcff'? has: ") as caught:
        Lake.open_or_new(spark, path.format(lake=lake))
    str(caught.value).encode()


@pytest.mark.parametrize("store", ["abfss", "ftp"])
def test_an_error_does_not_show_the_key_in_an_address(spark: SparkSession, store: str) -> None:
    with pytest.raises(LakeError, match=rf"{store}://data/jobs\?… ") as caught:
        read_lake(spark, f"{store}://data/jobs?sig=hunter2")
    assert "hunter2" not in str(caught.value)


def meanwhile(monkeypatch: pytest.MonkeyPatch, lake: Lake, work: Callable[[], None], *, behind: str = "opened") -> None:
    """Does some work when a merge of this lake has its mark, behind a call."""
    call = getattr(lake, behind)

    def called(name: str, *given: Any) -> Any:
        answer = call(name, *given)
        if Lake.opened(lake, name).transaction_version(upkeep.MERGING):
            monkeypatch.setattr(lake, behind, call)
            work()
        return answer

    monkeypatch.setattr(lake, behind, called)


@contextmanager
def when_its_time_is_over() -> Iterator[None]:
    now = time.time()
    with pytest.MonkeyPatch.context() as later:
        later.setattr(time, "time", lambda: now + upkeep.LEASE_SECONDS + 1)
        yield


def test_of_merges_at_a_time_one_merges_and_no_row_is_there_twice(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for _ in range(3):
        add(session, lake)
    first, second, third = (Lake.open(spark, lake) for _ in range(3))

    def begin() -> None:
        assert compact(second, most=2) == 0

    meanwhile(monkeypatch, first, begin)
    assert compact(first, most=2) == 3
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
    add(session, lake)
    assert compact(third, most=1) == 2, "the first one has ended"


def test_a_merge_whose_time_is_over_commits_nothing_after_another_one(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for _ in range(3):
        add(session, lake)
    slow, quick = (Lake.open(spark, lake) for _ in range(2))

    def merge() -> None:
        with when_its_time_is_over():
            assert compact(quick, most=2) == 3

    meanwhile(monkeypatch, slow, merge)
    assert compact(slow, most=2) == 0
    history = [attempt.id for attempt in session.history()]
    assert sorted(pl.read_delta(str(lake / "attempts"))["id"]) == ids(spark, lake) == history
    attempts = DeltaTable(str(lake / "attempts")).to_pyarrow_dataset()
    found = duckdb.connect().register("attempts", attempts).execute("select id from attempts order by id").fetchall()
    assert [number for (number,) in found] == history
    add(session, lake)
    assert compact(slow, most=1) == 2
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


@pytest.mark.parametrize("behind", ["committed", "opened"])
def test_a_merge_takes_back_its_own_mark_only_and_in_more_than_one_attempt(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch, *, behind: str
) -> None:
    session = connect()
    for _ in range(3):
        add(session, lake)
    slow, quick, third = (Lake.open(spark, lake) for _ in range(3))
    until = int((time.time() + 3 * upkeep.LEASE_SECONDS) * 1000)

    def take_over() -> None:
        with when_its_time_is_over():
            assert upkeep._taken(quick, "attempts", until)

    meanwhile(monkeypatch, slow, take_over, behind=behind)
    assert compact(slow, most=2) == 0
    assert compact(third, most=2) == 0, "the other one merges"
    answers = iter([False])
    monkeypatch.setattr(quick, "committed", lambda *given: next(answers, None) is None and third.committed(*given))
    upkeep._released(quick, "attempts", until)
    assert compact(third, most=2) == 3


def test_an_error_of_a_merge_is_not_hidden_by_one_of_its_mark(
    spark: SparkSession, lake: Path, add: Add, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for _ in range(2):
        add(session, lake)
    slow, quick = (Lake.open(spark, lake) for _ in range(2))

    def gone(*_: object) -> DeltaTable:
        raise LakeError("the store is away")

    def end() -> None:
        with when_its_time_is_over():
            assert compact(quick, most=1) == 2
        monkeypatch.setattr(slow, "opened", gone)

    meanwhile(monkeypatch, slow, end)
    monkeypatch.setattr(upkeep, "is_overtaken", lambda *_: False)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        compact(slow, most=1)


def test_exports_erasures_and_vacuums_go_on_where_a_merge_takes_over(
    spark: SparkSession, lake: Path, options: dict[str, str], add: Add, connect: Connect
) -> None:
    session = connect()
    add(session, lake, 2)
    other, calls, marks, opened = Lake.open(spark, lake), count(), count(1), Lake.opened
    assert upkeep._taken(other, "attempts", next(marks))

    def taking_over(self: Lake, name: str, number: int | None = None) -> DeltaTable:
        table = opened(self, name, number)
        if self is not other and name == "attempts" and next(calls) % 3 == 0:
            assert upkeep._taken(other, name, next(marks))
        return table

    ended(session)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "opened", taking_over)
        assert export(spark, lake, options=options).rows == 1
        [first, *rest] = [attempt.id for attempt in session.history()]
        assert erase(Lake.open(spark, lake), f"id = {first}") == 1
        names = {file.path.split("/")[-1] for file in other.version().files()}
        assert {path.name for path in lake.glob("attempts/date=*/*.parquet")} == names, "none has the erased row"
        killed = lake / "attempts" / "of-a-killed-run.parquet"
        killed.write_bytes(b"")
        upkeep.vacuum(Lake.open(spark, lake), kept_hours=0)
        assert not killed.exists()
    assert ids(spark, lake) == rest
    assert Lake.open(spark, lake).version().settings[upkeep.MERGING] == str(next(marks) - 1)
