"""What the page about Spark says runs."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark import database
from django_pgqueue.spark.errors import NOT_STARTED
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.tasks import task
from tests.spark.conftest import finish
from tests.support.pages import FOLDER, blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from tests.support.pages import Block
    from tests.support.sessions import Session

NOT_RUN = "needs Spark, tests/spark/test_page.py"


@task
def send_receipt(order_id: int) -> None:
    """As the page's project has it."""


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Runs it again if Spark waited ten seconds in vain for a Python process: on a busy machine."""
    code = compile(block.text, str(block), "exec")
    try:
        exec(code, namespace)  # noqa: S102 -- our own page
    except Exception as error:
        if NOT_STARTED not in str(error):
            raise
        exec(code, namespace)  # noqa: S102


def test_the_blocks_of_the_page_run(
    spark: SparkSession, queue: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(queue, 3)
    shop, tasks = ModuleType("shop"), ModuleType("shop.tasks")
    tasks.send_receipt = send_receipt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.tasks", tasks)
    found = [block for block in blocks(FOLDER / "data" / "spark.md") if block.not_run == NOT_RUN]
    assert len(found) >= 7
    namespace: dict[str, Any] = {"lake": str(tmp_path)}
    for block in found:
        if block.module is not None:
            monkeypatch.setitem(sys.modules, block.module, vault := ModuleType(block.module))
            exec(compile(block.text, str(block), "exec"), vars(vault))  # noqa: S102 -- our own page
        else:
            run(block, namespace)
    assert spark.read.parquet(f"{tmp_path}/attempts").count() == 3
    assert sorted(message.content["args"] for message in queue.messages()) == [[1], [2]]
    secret = tmp_path / "secret"
    secret.write_text("postgresql://me@vault/shop\n")
    monkeypatch.setattr("builtins.open", lambda path: secret.open() if path == "/run/secrets/database_url" else None)
    assert "host=vault" in database.writing(PipelineOptions.of({"credentials": "shop.vault.database_url"}))
