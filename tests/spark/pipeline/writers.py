"""Those who write the history meanwhile: they commit, roll back, and commit late."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import psycopg

from tests.support.sessions import Session, end_one

if TYPE_CHECKING:
    from types import TracebackType


class Writers:
    """Threads with a connection each, until the ``with`` block ends."""

    def __init__(self, conninfo: str, number: int = 8) -> None:
        self.conninfo = conninfo
        self.enough = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(seed,)) for seed in range(number)]

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.enough.set()
        for thread in self.threads:
            thread.join()

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(self.conninfo) as connection:
            session = Session(connection)
            while not self.enough.is_set():
                for _ in range(chance.randint(1, 5)):
                    end_one(session)
                # One in three is late: others, with larger ids, commit before it.
                self.enough.wait(chance.choice((0.0, 0.01, chance.uniform(0.1, 1.0))))
                if chance.random() < 0.25:
                    connection.rollback()
                else:
                    connection.commit()
