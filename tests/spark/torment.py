"""kill -9 at moments that are left to chance: of drivers with all their processes, and of executors."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.spark import programs
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import random
    import subprocess
    from collections.abc import Callable

MIN_SECONDS, MAX_SECONDS = 0.2, 4.0
SHARE_OF_DRIVERS = 0.3


class Torment:
    """A driver, and what is done to it.

    ``start`` starts a driver, which says "ready".  ``executors`` answers the ids of its executors' processes, and
    ``done`` how much has been done: every second kill waits until there is more, or nothing would ever be finished.
    """

    def __init__(
        self,
        start: Callable[[], subprocess.Popen[str]],
        executors: Callable[[subprocess.Popen[str]], list[int]],
        done: Callable[[], int],
        chance: random.Random,
    ) -> None:
        self.start = start
        self.done = done
        self.executors = executors
        self.chance = chance
        self.killed: Counter[str] = Counter()
        self.driver = self._started()

    def kill(self) -> str:
        """Kills one of the processes, after a while.  Answers which kind it was."""
        if self.killed.total() % 2:
            before = self.done()
            wait_until(lambda: self.done() > before or self.driver.poll() is not None, "something is done", 300)
        while True:
            time.sleep(self.chance.uniform(MIN_SECONDS, MAX_SECONDS))
            assert self.driver.poll() is None, "the driver has ended by itself"
            if self.chance.random() < SHARE_OF_DRIVERS:
                return self._kill_driver()
            if found := self.executors(self.driver):
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(self.chance.choice(found), signal.SIGKILL)
                    return self._counted("executor")

    def end(self) -> None:
        programs.kill(self.driver)

    def restart(self, between: Callable[[], object]) -> None:
        """Kills the driver, which does not count, and starts another one when something was done."""
        programs.kill(self.driver)
        between()
        self.driver = self._started()

    def _kill_driver(self) -> str:
        self.restart(lambda: None)
        return self._counted("driver")

    def _counted(self, kind: str) -> str:
        self.killed[kind] += 1
        return kind

    def _started(self) -> subprocess.Popen[str]:
        driver = self.start()
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        return driver
