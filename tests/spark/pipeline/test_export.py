"""The history in the lake: every committed attempt, once."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.management.commands.qpipeline import VARIABLE
from django_pgqueue.spark import steps
from django_pgqueue.spark.errors import HistoryReplaced, SparkQueueError, told
from django_pgqueue.spark.lake import Lake, LakeError, NewerLake, NotALake, read_lake, upkeep
from django_pgqueue.spark.pipeline import adopt, check, drop_exported, export, follow, forget
from django_pgqueue.spark.pipeline.export import Run
from django_pgqueue.spark.pipeline.source_database import origin_of
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.schema import ATTEMPTS
from tests.spark.pipeline.conftest import ended, settled, url_without_password
from tests.support.databases import install, session_in
from tests.support.sessions import NOON, end_one, token

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.pipeline.conftest import Add
    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)
DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC
# Who sends on a closed connection may lose the server's last words.
SESSION_ENDED = "PostgreSQL (broke|could not|cannot).*(idle-session timeout|server closed the connection)"


def ids(spark: SparkSession, lake: Path | str) -> list[int]:
    return sorted(row["id"] for row in read_lake(spark, lake).select("id").collect())


def test_every_attempt_is_exported_once_and_unchanged(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, lake = connect(), lake / '50% of a=b\'s "ü" #1.&+:'
    for queue in ("mail", "a/b=c", "007", "x" * 255):
        session.create({"n": queue}, queue=queue, headers={"trace": "1"})
        held = session.take(queues=[queue])
        session.value(
            "pgqueue_message_fail",
            id=held.id,
            attempt=held.attempt,
            worker=held.worker,
            error={"class": "E", "message": "no", "traceback": "…"},
        )
    settled(session)
    assert export(spark, lake, options=options).rows == 4
    assert export(spark, lake, options=options).rows == 0
    ended(session)
    assert export(spark, lake, options=options).rows == 1
    history = session.rows("select * from pgqueue_attempt order by id")
    columns = read_lake(spark, lake).columns
    assert sorted(columns) == sorted(history[0]._fields)
    found = read_lake(spark, lake).orderBy("id").collect()
    assert [as_in_sql(row.asDict()) for row in found] == [row._asdict() for row in history]


def as_in_sql(row: dict[str, Any]) -> dict[str, Any]:
    """Spark's times are naive, in the time zone of the machine; JSON is text in the lake."""
    times = {name: row[name].astimezone(dt.UTC) for name in ("created_at", "started_at", "finished_at")}
    values = {name: row[name] and json.loads(row[name]) for name in ("content", "headers", "result")}
    return row | times | values


def test_a_late_commit_is_neither_skipped_nor_repeated(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, late, undone = connect(), connect(autocommit=False), connect(autocommit=False)
    end_one(late)
    end_one(undone)
    ended(session)
    export(spark, lake, options=options)
    before = ids(spark, lake)
    undone.rollback()
    late.commit()
    ended(session)
    export(spark, lake, options=options)
    assert set(before) <= set(ids(spark, lake))
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_many_small_files_of_a_day_become_few_and_each_day_is_kept_when_the_next_is_killed(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for _ in range(2):
        for at_ms in (NOON, NOON + 86_400_000):
            end_one(session, at_ms)
        settled(session)
        export(spark, lake, options=options)
    opened = Lake.open(spark, lake)
    before = opened.version()
    monkeypatch.setattr(upkeep, "MERGED_BYTES", 1)
    assert upkeep.compact(opened, most=1) == 4
    after = opened.version()
    assert [len(before.files()), len(after.files()), after.number - before.number] == [4, 2, 6]
    assert after.position == before.position
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
    assert upkeep.vacuum(opened, kept_hours=0) == 4
    [file, _] = lake.glob("attempts/**/*.parquet")
    assert check(spark, lake) == 2
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
    file.unlink()
    with pytest.raises(LakeError, match=f"1 of the 2 files of .* are gone, or have another size: .*{file.name}"):
        check(spark, lake)


def test_of_exports_at_a_time_each_attempt_comes_from_one(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 5)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(export, spark, lake, options={**options, "maxRowsPerBatch": "1"}) for _ in range(2)]
        assert sum(run.result().rows for run in runs) == 5
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_the_draft_of_another_commit_may_vanish_while_a_commit_becomes_durable(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session)
    export(spark, lake, options=options)
    (lake / "attempts/_delta_log/00000000000000000099.json#1").symlink_to("vanished")
    ended(session)
    assert export(spark, lake, options=options).rows == 1


def test_a_file_that_a_task_cannot_write_is_told_without_a_trace_and_moves_no_position(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    export(spark, lake, options=options)
    before = Lake.open(spark, lake).version().position
    (lake / f"attempts/date={DAY}").touch()
    end_one(session, NOON)
    settled(session)
    with pytest.raises(SparkQueueError, match=rf"^A task failed: \w+Error: .*date={DAY}.*directory"):
        export(spark, lake, options=options)
    assert Lake.open(spark, lake).version().position == before


def test_the_same_transactions_are_added_once(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session)
    export(spark, lake, options=options)
    opened = Lake.open(spark, lake)
    end = opened.version().position
    [file] = opened.version().files()
    assert not opened.advance(0, end, [file], missed=0, run={})
    assert not opened.advance(0, end + 5, [file], missed=0, run={})
    assert opened.version().files() == [file]
    assert len(ids(spark, lake)) == 1


def test_a_folder_that_is_not_ours_is_refused(spark: SparkSession, lake: Path, options: dict[str, str]) -> None:
    lake.mkdir()
    (lake / "holiday.jpg").write_bytes(b"")
    with pytest.raises(NotALake, match=r"'holiday\.jpg'"):
        export(spark, lake, options=options)
    assert [file.name for file in lake.iterdir()] == ["holiday.jpg"]


def test_a_database_without_a_queue_makes_no_lake(
    spark: SparkSession, lake: Path, options: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(options["urlVariable"], make_conninfo(url, options="-csearch_path=pg_catalog"))
    with pytest.raises(SparkQueueError, match=r"has no queue .*Run manage\.py migrate"):
        export(spark, lake, options=options)
    assert not lake.exists()


def test_a_missing_lake_is_an_error_for_readers(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(NotALake, match="no lake"):
        read_lake(spark, lake)
    assert not lake.exists()


def test_a_format_from_a_newer_version_is_refused(spark: SparkSession, lake: Path, options: dict[str, str]) -> None:
    Lake.open_or_new(spark, lake).make(ATTEMPTS, {"pgqueue.format": "4"})
    for use in (lambda: read_lake(spark, lake), lambda: export(spark, lake, options=options)):
        with pytest.raises(NewerLake, match="format 4"):
            use()


def test_a_database_that_was_renamed_or_restored_is_adopted_after_a_look_at_both(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 2)
    export(spark, lake, options=options)
    opened = Lake.open(spark, lake)
    opened.adopt(opened.version(), "1/before", 1 << 60)
    ended(session)
    with pytest.raises(LakeError, match=r"1/before.*export --adopt"):
        export(spark, lake, options=options)
    assert adopt(spark, lake, options=options).same == 2
    assert export(spark, lake, options=options).rows == 1
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
    version = opened.version().number
    session.rows("update pgqueue_attempt set message_id = message_id + 1000000")
    with pytest.raises(LakeError, match="3 attempts of this database have ids that the lake has for other attempts"):
        adopt(spark, lake, options=options)
    session.rows("delete from pgqueue_attempt")
    with pytest.raises(LakeError, match="no attempt of this database"):
        adopt(spark, lake, options=options)
    assert opened.version().number == version


def test_a_record_behind_the_lake_is_that_of_a_killed_run_or_of_a_server_that_went_back(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """The server has reached the position of the lake again: only its own record shows that it was further back."""
    session = connect()
    for _ in range(2):
        ended(session)
        export(spark, lake, options=options)
    session.rows(BACK)
    ended(session)
    assert export(spark, lake, options={**options, "mask": ""}).rows == 1
    last = session.one("select max(id) from pgqueue_attempt")
    for record in (BACK, "delete from pgqueue_lake"):
        session.rows(record)
        assert export(spark, lake, options=options).rows == 0
        session.rows(record)
        for column in ("message_id", "id"):
            session.rows(f"update pgqueue_attempt set {column} = {column} + 9 where id = {last}")
            for use, error in ((export, HistoryReplaced), (adopt, LakeError)):
                with pytest.raises(error, match=rf"id >= {last}', then qpipeline export --adopt"):
                    use(spark, lake, options=options)
            session.rows(f"update pgqueue_attempt set {column} = {column} - 9 where id in ({last}, {last + 9})")


def test_a_lake_that_was_restored_from_a_backup_goes_on_from_there_and_is_told_once(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, tmp_path: Path
) -> None:
    session, said = connect(), Said()
    ended(session)
    export(spark, lake, options=options)
    shutil.copytree(lake, tmp_path / "backup")
    ended(session, 2)
    export(spark, lake, options=options)
    shutil.rmtree(lake)
    shutil.copytree(tmp_path / "backup", lake)
    assert export(spark, lake, options=options, progress=said).rows == 2
    assert export(spark, lake, options=options, progress=said).rows == 0
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
    assert ["was restored from a backup, or is one of two copies" in words for words in said.said] == [True]


def test_a_lake_whose_position_is_the_recorded_one_is_not_opened_again(  # noqa: PLR0917
    spark: SparkSession,
    lake: Path,
    options: dict[str, str],
    add: Add,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an object store that would be one more listing for each piece."""
    add(connect(), lake)
    opened = Lake.open(spark, lake)
    version = opened.version()
    with origin_of(opened, options) as origin:
        recorded = origin.recorded(version.lake_id)
        assert recorded is not None
        assert recorded[0] == version.position
        run = Run(opened, origin, options, "export", Progress())
        monkeypatch.delattr(Lake, "version")
        assert run._next_position(version) >= version.position


BACK = "update pgqueue_lake set position = (select min(transaction_id) + 1 from pgqueue_attempt)"


@pytest.mark.parametrize("record", [BACK, "delete from pgqueue_lake"])
def test_what_was_erased_from_a_lake_whose_record_is_behind_is_not_taken_for_lost(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, record: str
) -> None:
    session = connect()
    ended(session, 3)
    export(spark, lake, options=options)
    [_, person, _] = kept = ids(spark, lake)
    assert upkeep.erase(Lake.open(spark, lake), f"id = {person}") == 1
    session.rows(record)
    assert export(spark, lake, options=options).rows == 0
    session.rows(record)
    with pytest.raises(LakeError, match=f"lacks attempts .* came before .* 'id >= {kept[2]}', then"):
        adopt(spark, lake, options=options)
    ended(session)
    assert export(spark, lake, options=options).rows == 1
    assert ids(spark, lake)[:2] == [kept[0], kept[2]]


def test_what_the_error_says_makes_a_lake_whose_server_went_back_whole(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """Of two attempts the one with the higher id has the older transaction."""
    session = connect()
    ended(session, 5)
    export(spark, lake, options=options)
    _, first, second, third, _ = session.rows("select id, transaction_id from pgqueue_attempt order by id")
    for at, other in ((first, third), (third, first)):
        session.rows(f"update pgqueue_attempt set transaction_id = {other.transaction_id} where id = {at.id}")
    session.rows(f"update pgqueue_attempt set id = id + 9 where id = {second.id}")
    session.rows(f"update pgqueue_lake set position = {first.transaction_id}")
    for use in (export, adopt):
        with pytest.raises(SparkQueueError, match=f"erase --where 'id >= {first.id}', then") as refused:
            use(spark, lake, options=options)
    [condition] = re.findall(r"--where '(.+)', then", str(refused.value))
    assert upkeep.erase(Lake.open(spark, lake), condition) == 4
    assert adopt(spark, lake, options=options).same == 1
    assert export(spark, lake, options=options).rows == 4
    assert ids(spark, lake) == [row.id for row in session.rows("select id from pgqueue_attempt order by id")]


def test_a_day_that_only_the_lake_has_is_lost_if_the_server_has_older_ones(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 2)
    first, last = (row.id for row in session.rows("select id from pgqueue_attempt order by id"))
    session.rows(f"update pgqueue_attempt set finished_at = finished_at - interval '1 day' where id = {first}")
    export(spark, lake, options=options)
    session.rows(f"delete from pgqueue_attempt where id = {last}")
    session.rows(BACK)
    for use in (export, adopt):
        with pytest.raises(SparkQueueError, match=f"erase --where 'id >= {last}', then"):
            use(spark, lake, options=options)


def test_a_day_that_only_the_lake_has_between_others_was_dropped(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """Retention goes on past a day that cannot be dropped, such as one that a view needs."""
    session = connect()
    ended(session, 3)
    every = [row.id for row in session.rows("select id from pgqueue_attempt order by id")]
    for days, attempt in zip((2, 1), every[:2], strict=True):
        session.rows(
            f"update pgqueue_attempt set finished_at = finished_at - interval '{days} days' where id = {attempt}"
        )
    export(spark, lake, options=options)
    session.rows(f"delete from pgqueue_attempt where id = {every[1]}")
    session.rows(BACK)
    assert adopt(spark, lake, options=options).same == 2
    session.rows(BACK)
    assert export(spark, lake, options=options).rows == 0
    assert ids(spark, lake) == every


def test_a_second_server_that_writes_the_lake_meanwhile_is_noticed(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, calls = connect(), iter([False, True])
    ended(session)
    export(spark, lake, options=options)
    ended(session, 3)
    *_, last = [row.transaction_id for row in session.rows("select transaction_id from pgqueue_attempt order by id")]

    def after_a_batch() -> bool:
        if next(calls, False):
            opened = Lake.open(spark, lake)
            opened.advance(opened.version().position, last, [], run={})  # with other attempts, or none
        return False

    with pytest.raises(HistoryReplaced, match="are not the same"):
        follow(spark, lake, options={**options, "maxRowsPerBatch": "1"}, until=after_a_batch, once=True)
    assert len(ids(spark, lake)) == 2


def test_the_queue_in_another_schema_of_the_database_is_another_one(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would move the position past attempts of the first one, which would be missing for ever."""
    session = connect()
    ended(session, 2)
    export(spark, lake, options=options)
    url = os.environ[VARIABLE]
    session.rows("create schema neighbour")
    try:
        with session_in(url, search_path="neighbour") as other:
            install(other)
            ended(other)
        monkeypatch.setenv(VARIABLE, make_conninfo(url, options="-c search_path=neighbour"))
        with pytest.raises(LakeError, match=r"the queue \d+/\w+/public .*, and this is \d+/\w+/neighbour"):
            export(spark, lake, options=options)
    finally:
        session.rows("drop schema neighbour cascade")
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_a_lake_of_the_first_release_names_no_schema(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session)
    export(spark, lake, options=options)
    version = Lake.open(spark, lake).version()
    Lake.open(spark, lake).adopt(version, version.source.rpartition("/")[0], version.position)
    ended(session)
    assert export(spark, lake, options=options).rows == 1


def test_days_that_the_lake_has_are_dropped_and_others_stay(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    for days in (0, 1):
        session.value("pgqueue_attempt_partition", day=DAY + dt.timedelta(days=days))
    end_one(session, NOON)
    end_one(session, NOON + 86_400_000)
    session.set_clock(None)
    settled(session)
    export(spark, lake, options=options)
    end_one(session, NOON + 86_400_000)
    assert drop_exported(spark, lake, keep_days=10**12, options=options).days == ()
    dropped = drop_exported(spark, lake, keep_days=30, options=options)
    assert dropped.days == (DAY,)
    assert [*dropped.kept] == [DAY + dt.timedelta(days=1)]
    assert len(session.history()) == 2
    settled(session)
    export(spark, lake, options=options)
    session.rows("select pgqueue_lake_move('other', 's3a://other', 0)")
    kept = drop_exported(spark, lake, keep_days=30, options=options).kept.values()
    assert [*kept] == ["the lake s3a://other has not read 2 attempts of it: export to that lake first, or forget it"]
    assert forget("other", options) == 1
    assert drop_exported(spark, lake, keep_days=30, options=options).days == (DAY + dt.timedelta(days=1),)
    assert len(ids(spark, lake)) == 3


def test_a_day_that_is_not_dropped_ends_no_message(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """One waits until others have succeeded; one of these failed, which nobody knows any more once the day is gone."""
    session = connect()
    session.value("pgqueue_attempt_partition", day=DAY)
    session.set_clock(NOON)
    open_one, failing = session.create(dequeue_at=8_000_000_000_000), session.create(dequeue_at=0)
    session.rows(
        "insert into pgqueue_message (dequeue_at, content, in_line, after_policy, after_ids, awaited_id, checks) "
        "values (8000000000000, '1', false, 'succeeded', %s::bigint[], %s, 1)",
        [[open_one, failing], open_one],
    )
    session.value("pgqueue_message_fail", **token(session.take()))
    session.set_clock(None)
    settled(session)
    export(spark, lake, options=options)
    end_one(session, NOON)
    session.set_clock(None)
    assert [*drop_exported(spark, lake, keep_days=30, options=options).kept] == [DAY]
    assert len(session.messages()) == 2
    settled(session)
    export(spark, lake, options=options)
    assert drop_exported(spark, lake, keep_days=30, options=options).days == (DAY,)
    assert [message.id for message in session.messages()] == [open_one]


def test_postgresql_knows_how_far_a_lake_is_and_a_gap_is_reported_once(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, progress = connect(), Said()
    export(spark, lake, options=options)
    [(position, location)] = session.rows("select position, location from pgqueue_lake where exported_at is not null")
    assert (position, location) == (Lake.open(spark, lake).version().position, str(lake))
    session.value("pgqueue_attempt_partition", day=DAY)
    end_one(session, NOON)
    session.set_clock(NOON + 30 * 86_400_000)
    settled(session)
    session.value("pgqueue_attempt_maintain", days_ahead=0, days_kept=2)
    session.set_clock(None)
    done = export(spark, lake, options=options, progress=progress)
    assert done.missed is not None
    assert (done.rows, done.missed.attempts, done.missed.since) == (0, 1, DAY)
    [words] = [words for words in progress.said if "gap" in words]
    assert "retention dropped 1 attempts of the days 2023-11-14 to 2023-11-14 before they were exported" in words
    assert export(spark, lake, options=options).missed is None
    assert forget(str(lake), options) == 1
    assert forget(str(lake), options) == 0


def test_a_lake_is_forgotten_by_what_was_its_address(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """An earlier release wrote where this one refuses to write."""
    connect().rows("select pgqueue_lake_move('old', 's3a://data/jobs^1', 0)")
    export(spark, lake, options=options)
    said: list[str] = []
    for address in ("s3a://data/jobs^1", str(lake), "s3a://data/jobs^1"):
        steps.forget(spark, Namespace(lake=address), {"options": options}, said.append)
    assert said == [
        "forgot s3a://data/jobs^1",
        f"forgot {lake}",
        "PostgreSQL knows no lake with the location or id s3a://data/jobs^1",
    ]


def test_what_holds_the_export_back_is_named(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, late = connect(), connect(autocommit=False)
    settled(session)
    pid = late.one("select pg_backend_pid()")
    end_one(late)
    end_one(session)
    words = rf"wait for session {pid} \(.+\) in the database .+, whose transaction has been open for \d"
    for step in (export, lambda *given, **more: follow(*given, **more, once=True)):
        progress = Said()
        step(spark, lake, options=options, progress=progress)
        assert re.search(words, "\n".join(progress.said))
        assert f"pg_terminate_backend({pid})" in "\n".join(progress.said)
    late.commit()
    settled(session)
    progress = Said()
    assert export(spark, lake, options=options, progress=progress).rows == 2
    assert progress.said == []


def test_a_prepared_transaction_that_holds_the_export_back_is_named_with_what_ends_it(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, late = connect(), connect()
    settled(session)
    late.rows("begin")
    end_one(late)
    late.rows("prepare transaction 'it''s forgotten'")
    end_one(session)
    progress = Said()
    assert export(spark, lake, options=options, progress=progress).rows == 0
    [words] = progress.said
    owner, database = session.rows("select current_user, current_database()")[0]
    assert f"the prepared transaction 'it''s forgotten' of {owner} in the database {database}, whose" in words
    assert re.search(r"has been open for \d", words)
    assert "commit prepared 'it''s forgotten', or " in words
    session.rows(words.rpartition(", or ")[2].rstrip("."))
    settled(session)
    assert export(spark, lake, options=options).rows == 1


def test_a_login_that_may_only_read_exports_and_records_the_position_as_soon_as_it_may(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, conninfo: str
) -> None:
    session, late, progress = connect(), connect(autocommit=False), Said()
    role = f"reader_{uuid4().hex}"
    session.rows(f"create role {role}")
    session.rows(f"grant select on all tables in schema public to {role}")
    mine = {"url": f"{url_without_password(conninfo, lake.parent)}&options=-crole%3D{role}"}
    try:
        settled(session)
        end_one(late)
        end_one(session)
        for _ in range(2):
            assert export(spark, lake, options=mine, progress=progress).rows == 0
        assert "whose transaction has been open for an unknown time" in progress.said[1]
        late.commit()
        settled(session)

        def grant() -> bool:
            if len(progress.said) > 4:
                session.rows(f"grant all on pgqueue_lake to {role}")
            return False

        once_more = {**mine, "maxRowsPerBatch": "1"}
        assert follow(spark, lake, options=once_more, progress=progress, until=grant, once=True) == 2
        assert [words for words in progress.said if "permission denied for table pgqueue_lake" in words]
        assert session.one("select position from pgqueue_lake") == Lake.open(spark, lake).version().position
        with pytest.raises(SparkQueueError, match=SESSION_ENDED):
            export(spark, lake, options={"url": f"{mine['url']}%20-cidle_session_timeout%3D1"})
        session.rows(f"revoke all on pgqueue_step from {role}")
        with (
            pytest.raises(SparkQueueError, match="PostgreSQL refused: permission denied for table pgqueue_step"),
            told(),
        ):
            export(spark, lake, options=mine)
    finally:
        session.rows(f"drop owned by {role}")
        session.rows(f"drop role {role}")


class Said(Progress):
    """Progress that is remembered, without what a busy machine adds."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, words: str) -> None:
        pass

    def say(self, words: str) -> None:
        if "did not start in ten seconds" not in words:
            self.said.append(words)
