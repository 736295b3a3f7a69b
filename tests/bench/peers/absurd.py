"""absurd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from absurd_sdk import Absurd

from tests.bench.peers.adapter import DATABASE_URL, PYTHON, STEPS, Adapter
from tests.bench.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 32
SQL = "PGQUEUE_BENCH_ABSURD_SQL"


def work() -> None:
    noted = tally()
    app = Absurd(DATABASE_URL)

    @app.register_task(name="noop")
    def noop(params: Any, context: Any) -> None:
        for value in range(STEPS):
            context.step(f"step-{value}", lambda value=value: value)
        noted.ran(params["number"])

    app.start_worker(concurrency=SLOTS, batch_size=SLOTS, poll_interval=0.05)


class Peer(Adapter):
    configuration = f"start_worker(concurrency={SLOTS}, batch_size={SLOTS}, poll_interval=0.05)"

    def install(self) -> None:
        """Its package brings no SQL: the variable names the file of its repository."""
        if SQL not in os.environ:
            message = f"set {SQL} to the path of its absurd.sql"
            raise SystemExit(message)
        with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
            connection.execute(Path(os.environ[SQL]).read_bytes())
            connection.execute("select absurd.create_queue('default')")

    def workers(self, processes: int) -> list[list[str]]:
        return [[PYTHON, "-m", "tests.bench.peers.absurd"]] * processes

    def open(self) -> None:
        self.app = Absurd(DATABASE_URL)
        self.app.register_task(name="noop")(lambda _params, _context: None)

    def enqueue(self, number: int) -> Any:
        self.app.spawn("noop", {"number": number})

    def bulk(self, numbers: Sequence[int]) -> Any:
        """Its SQL takes one at a time: one transaction, and one statement for many."""
        statement = """
            select count(*)
            from unnest(%s::int[]) n, absurd.spawn_task('default', 'noop', jsonb_build_object('number', n))
        """
        with psycopg.connect(DATABASE_URL) as connection:
            connection.execute(statement, [list(numbers)])


if __name__ == "__main__":
    work()
