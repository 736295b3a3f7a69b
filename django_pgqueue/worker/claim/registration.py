"""The worker's row in pgqueue_worker, which shows that it is alive, and whether it sleeps."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.row import ASLEEP_MS, SEEN_EVERY_SECONDS, SEEN_HOLDING_SECONDS, hostname, new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.functions import Connection
    from django_pgqueue.worker.run.marks import Marks
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

SEEN_WITH_ROOM_SECONDS = 0.5
"""An awake worker with free slots refreshes its row this often, so that workers with free slots share the polling."""
ROOM_AFTER_SECONDS = 0.2
"""A worker writes that it has room when it has had room for this long: what changes more often is not worth a write."""
FULL_AFTER_SECONDS = 0.05
"""A worker with short jobs writes that it is full when it has been full for this long: until then a few jobs wake no
other worker."""


class Registration:
    """Called by the process's thread alone, in turns in which the row has to be written, and at the end."""

    def __init__(
        self,
        settings: WorkerSettings,
        marks: Marks,
        *,
        problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``problem`` returns what the worker cannot do at present, for qdoctor."""
        self.settings = settings
        self.marks = marks
        self.hostname = hostname()
        self.id = new_id()
        self.problem = problem
        self.lacks: Callable[[], list[str]] = list
        """Returns the tasks of parked messages that the worker does not know."""
        self.refuses: Callable[[], list[str]] = list
        """Returns those that it knows, and of which it can take the arguments of no parked message."""
        self.version: str | None = None
        """That of the deploy, where its settings name one."""
        self.on_seen: Callable[[functions.Company], None] = lambda _: None
        self.slots = settings.threads
        self.on_order: Callable[[functions.Company], None] = lambda _: None
        """Called with what the row says after each refresh: an order of a person may be in it."""
        self.on_missed: Callable[[], None] = lambda: None
        """Called when another worker has not been seen for some seconds."""
        self.on_edit: Callable[[], None] = lambda: None
        """Called when an edit is to be done."""
        self.hold: Callable[[str], bool] = lambda _: False
        """Returns whether the session holds the advisory lock of this name."""
        self.holds: Callable[[], bool] = lambda: False
        """Returns whether the worker holds messages."""
        self.next_seen = 0.0
        self.has_room = False
        """What the row says: enqueues wake nobody where an awake worker has room."""
        self.rests = False
        """The row says that the worker rests."""
        self._room_since: float | None = None
        self._full_since: float | None = None
        self._has_news_of_others = False
        self._has_lacked = False
        self.former_ids: list[str] = []
        """Names whose rows are still to be deleted."""

    def rename(self) -> str:
        """Renames the worker after the server was restarted, another one has taken over, or another database has its
        name.  Such a one may have lost its last commits, and may give their ids to other messages.  With a new name, no
        end of a message held here can be taken for the end of another one.  Returns the new name.
        """
        before, self.id = self.id, new_id()
        self.former_ids.append(before)
        self.marks.sign_on(self.id)
        self.be_seen_soon()
        self.has_room = self.rests = False
        logger.warning(
            "the connection leads to another server or database, or the server was restarted: worker=%s goes on as "
            "worker=%s",
            before,
            self.id,
        )
        return self.id

    def be_seen_soon(self) -> None:
        self.next_seen = 0.0

    def begins_to_hold(self, *, now: float) -> None:
        """Called with each claim: an idle worker was to be seen later."""
        self.next_seen = min(self.next_seen, now + SEEN_HOLDING_SECONDS)

    def has_news_of_others(self) -> bool:
        """Whether the worker has read about the others since the last call."""
        news, self._has_news_of_others = self._has_news_of_others, False
        return news

    def news_of_room(self, *, has_room: bool, now: float, at_once: bool = True) -> bool:
        """Whether the row has to change.  ``at_once``: a full worker will stay full for some time."""
        if not has_room:
            self._room_since = None
            self._full_since = now if self._full_since is None else self._full_since
            return self.has_room and (at_once or now - self._full_since >= FULL_AFTER_SECONDS)
        self._full_since = None
        self._room_since = now if self._room_since is None else self._room_since
        return not self.has_room and now - self._room_since >= ROOM_AFTER_SECONDS

    @property
    def says_room_by_mistake(self) -> bool:
        return self.has_room and self._full_since is not None

    def be_seen(self, connection: Connection, *, asleep: bool, has_room: bool = False) -> functions.Company:
        seconds = SEEN_HOLDING_SECONDS if self.holds() else SEEN_EVERY_SECONDS
        self.next_seen = time.monotonic() + (SEEN_WITH_ROOM_SECONDS if has_room else seconds)
        company = functions.worker_seen(
            connection,
            worker=self.id,
            queues=self.settings.queues,
            exclude_queues=self.settings.exclude_queues,
            hostname=self.hostname,
            pid=os.getpid(),
            slots=self.slots,
            asleep_ms=ASLEEP_MS if asleep else None,
            has_room=has_room,
            problem=self.problem(),
            held=self.hold(self.id),
        )
        if self.version is not None:
            functions.worker_version(connection, self.id, self.version)
        self._record_lacks(connection)
        self.rests = False
        self.on_seen(company)
        if company.misses_one:
            self.on_missed()
        if company.has_edit:
            self.on_edit()
        if company.quarantine_waits and not self.settings.quarantine:
            self.marks.want_quarantine()
        self._has_news_of_others = self.has_room and has_room
        self.has_room = has_room
        self.on_order(company)
        return company

    def _record_lacks(self, connection: Connection) -> None:
        """The function writes only what has changed, and the row may be a new one."""
        lacks, refuses = self.lacks(), self.refuses()
        if lacks or refuses or self._has_lacked:
            functions.worker_lacks(connection, self.id, lacks, refuses)
        self._has_lacked = bool(lacks or refuses)

    def delete_former(self, connection: Connection) -> None:
        """Deletes the rows of former names.  Another session may hold one: nothing else waits for that."""
        while self.former_ids:
            functions.worker_gone(connection, self.former_ids[0])
            self.former_ids.pop(0)

    def announced(self, rests: bool, *, seconds: float) -> None:
        """Takes note that the row says that the worker rests, for so many seconds.  Without a row it says nothing."""
        self.rests = rests
        self.next_seen = time.monotonic() + seconds if rests else 0.0

    def leave(self, connection: Connection) -> None:
        functions.worker_gone(connection, self.id)
