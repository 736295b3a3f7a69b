"""The line for cron of the page about raw messages keeps the history as the page says, where no worker runs."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import FOLDER, ROOT

if TYPE_CHECKING:
    from tests.project.docs.conftest import Psql

CRON = re.compile(r"^(?:[\d*]+ ){5} *(psql .+)$", re.MULTILINE)
END_ONE = """
select set_config('pgqueue.now', {ms}::text, false);
select pgqueue_message_create('{{"day": {days}}}', 'yard') \\gset
select * from pgqueue_message_dequeue('{{yard}}') \\gset
select pgqueue_message_complete(:id, :attempt);
"""
WHERE = (
    "select string_agg(tableoid::regclass || ' ' || content, ',' order by id) from pgqueue_attempt where queue = 'yard'"
)
DAYS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'pgqueue_attempt'::regclass and c.relname ~ '[0-9]{8}$'
"""


@pytest.fixture
def yard(psql: Psql) -> Psql:
    """A queue in a schema of its own."""
    psql.run("--command", "create schema yard")
    own = replace(psql, environment={**psql.environment, "PGOPTIONS": "-c search_path=yard"})
    for name in ("install", "movable_clock"):
        own.run("--file", str(ROOT / "sql" / f"{name}.sql"))
    return own


def test_the_command_for_cron_moves_drops_and_makes_partitions(yard: Psql) -> None:
    now = dt.datetime.now(dt.UTC)
    for days in (50, 3):
        at = now - dt.timedelta(days=days)
        yard.run(script=END_ONE.format(ms=int(at.timestamp() * 1000), days=days))
    for name in answer(yard, DAYS).split():  # as if nobody had called it since the first week
        yard.run("--command", f"drop table {name}")
    assert answer(yard, WHERE) == 'pgqueue_attempt_default {"day": 50},pgqueue_attempt_default {"day": 3}'

    [command] = CRON.findall((FOLDER / "guide" / "raw-messages.md").read_text())
    path = os.pathsep.join([str(Path(yard.program).parent), os.environ["PATH"]])
    subprocess.run(["sh", "-c", command], env={**os.environ, **yard.environment, "PATH": path}, check=True)

    assert answer(yard, WHERE) == f'pgqueue_attempt_{now - dt.timedelta(days=3):%Y%m%d} {{"day": 3}}'
    assert f"pgqueue_attempt_{now + dt.timedelta(days=7):%Y%m%d}" in answer(yard, DAYS).split()


def answer(yard: Psql, query: str) -> str:
    return yard.run("--tuples-only", "--no-align", "--command", query).strip()
