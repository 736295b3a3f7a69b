"""Runs what the page "From absurd, DBOS and pgtask" shows of one of them, in a database, and prints what came of it.

python -m tests.project.docs.durable_there pgtask postgresql://…
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg

from tests.support.pages import FOLDER, blocks

NAMES = ("absurd", "dbos", "pgtask")


def code(name: str) -> str:
    theirs = [block.text for block in blocks(FOLDER / "move" / "durable.md") if block.not_run]
    return theirs[NAMES.index(name)]


def absurd(url: str) -> Any:
    from absurd_sdk import Absurd
    from absurdctl import BUNDLED_SCHEMA_SQL

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    app = Absurd(url)
    app.create_queue()
    mails: list[Any] = []
    names = {
        "app": app,
        "charge": lambda amount: {"id": f"ch_{amount}"},
        "reserve": len,
        "notify": lambda *mail: mails.append(mail),
    }
    exec(code("absurd"), names)  # noqa: S102 -- our own pages
    while not mails:
        app.work_batch()
    return mails


def dbos(url: str) -> Any:
    from dbos import DBOS, SetWorkflowID

    # Its version is the hash of the functions' source, which code that is not in a file has not.
    DBOS(config={"name": "shop", "system_database_url": url, "application_version": "1", "log_level": "ERROR"})
    mails: list[str] = []
    names: dict[str, Any] = {
        "DBOS": DBOS,
        "SetWorkflowID": SetWorkflowID,
        "confirm": mails.append,
        "send_reminder": mails.append,
    }
    exec(code("dbos"), names)  # noqa: S102
    with SetWorkflowID("event-7"):
        again = DBOS.start_workflow(names["remind"], "ada@example.com", 86_400)
    assert again.get_workflow_id() == "event-7"
    pictures = names["shrink_all"](["a.png", "b.png"])
    while not mails:
        time.sleep(0.01)
    return [pictures, mails]


def pgtask(url: str) -> Any:
    return asyncio.run(_pgtask(url))


async def _pgtask(url: str) -> Any:
    from pgtask import Client, TaskRegistry, Worker

    client = await Client.connect(url)
    await client.migrate()
    names: dict[str, Any] = {"Client": Client, "TaskRegistry": TaskRegistry}
    exec(code("pgtask"), names)  # noqa: S102
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("create table orders (id bigint)")
        await names["order"](connection, 7)
    worker = Worker(url, names["tasks"])
    working = asyncio.ensure_future(worker.run())
    same = await client.enqueue(names["charge"].request({"order_id": 7}, idempotency_key="charge:7"))
    result = await same.result(timeout=30)
    worker.shutdown()
    await working
    return None if result is None else result.result


if __name__ == "__main__":
    run = {"absurd": absurd, "dbos": dbos, "pgtask": pgtask}[sys.argv[1]]
    print(json.dumps(run(sys.argv[2].replace("postgres://", "postgresql://", 1))), flush=True)
    os._exit(0)  # the threads of DBOS sleep until the reminder is due
