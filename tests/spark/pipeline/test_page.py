"""What docs/pages/data/pipeline.md says: its Python with Spark, DuckDB and Polars, and its tables of columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.management.commands.qpipeline import VARIABLE
from django_pgqueue.spark.lake.lake import FORMAT
from django_pgqueue.spark.lake.schema import SCHEMAS
from django_pgqueue.spark.pipeline import export, report
from tests.spark.pipeline.conftest import settled
from tests.spark.pipeline.test_replay import fail_one
from tests.support.pages import FOLDER, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect

PAGE = FOLDER / "data" / "pipeline.md"
HERE = "tests/spark/pipeline/test_page.py"


def shown(language: str) -> list[str]:
    return [block.text for block in blocks(PAGE) if block.language == language and HERE in (block.not_run or "")]


@pytest.mark.parametrize("table", SCHEMAS)
def test_the_page_has_every_column_of_the_lake_with_its_type(table: str) -> None:
    section = PAGE.read_text().partition(f"\n### {table}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    fields = SCHEMAS[table].fields
    assert rows == [(field.name, field.dataType.simpleString() + ", null" * field.nullable) for field in fields]
    assert f"which is {FORMAT}." in PAGE.read_text()


@pytest.mark.django_db(transaction=True)
def test_its_blocks_run_on_a_lake(  # noqa: PLR0917
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, str],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = connect()
    for number in range(3):
        fail_one(session, number, queue="mail")
    session.rows("insert into pgqueue_event values ('paid', '2026-11-20 12:00', '{}'), ('late', '2026-11-22', '{}')")
    settled(session)
    export(spark, tmp_path / "lake", options=options)
    report(spark, tmp_path / "lake", options=options)

    monkeypatch.chdir(tmp_path)
    # The reader's variable is DATABASE_URL, which the executors of this session do not have.
    namespace: dict[str, Any] = {"spark": spark}
    changed = {"/data/": f"{tmp_path}/", '"lake")\nprint': f'"lake", options={{"urlVariable": "{VARIABLE}"}})\nprint'}
    page = "\f".join(shown("python"))
    for text, here in changed.items():
        page = page.replace(text, here)
    for block in page.split("\f"):
        exec(block, namespace)  # noqa: S102
    assert [row["name"] for row in spark.read.parquet(f"{tmp_path}/events/2026-11-20").collect()] == ["paid"]
    said = capsys.readouterr().out
    assert re.search(r"\|\s*null\|\s*E\|\s*3\|", said, re.IGNORECASE)
    assert "0 attempts" in said
    assert re.search(r"mail\s*[│|]\s*NULL\s*[│|]\s*failed\s*[│|]\s*3 ", said), "DuckDB"
    assert re.search(r"mail\s*┆\s*3 ", said), "Polars"
