"""The SQL functions with the words of Python's ``Queue``: what a binding for another language would look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.sessions import token

if TYPE_CHECKING:
    from tests.support.sessions import Session


class SqlQueue:
    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name

    def send(self, content: Any, **parameters: Any) -> int:
        return self.session.create(content, queue=self.name, **parameters)

    def send_many(self, contents: list[Any]) -> list[int]:
        messages = [{"content": content, "queue": self.name} for content in contents]
        return self.session.ids("pgqueue_message_create_many", messages=messages)

    def receive(self, *, lock_seconds: float = 60) -> SqlMessage | None:
        return next(iter(self.receive_many(1, lock_seconds=lock_seconds)), None)

    def receive_many(self, limit: int, *, lock_seconds: float = 60) -> list[SqlMessage]:
        held = self.session.dequeue(limit, queues=[self.name], lock_ms=round(lock_seconds * 1000))
        return [SqlMessage(self.session, row) for row in held]


class SqlMessage:
    def __init__(self, session: Session, row: Any) -> None:
        self.session, self.row = session, row
        self.id, self.content, self.attempt, self.state = row.id, row.content, row.attempt, row.state

    def complete(self, result: Any = None) -> None:
        self._ours(self.session.value("pgqueue_message_complete", **token(self.row), result=result))

    def defer(self, seconds: float = 0, *, state: Any = None, error: str | None = None) -> None:
        parameters = {"state": state, "error": None if error is None else {"message": error}}
        dequeue_at = self.session.one("select pgqueue_now()") + round(seconds * 1000)
        self._ours(
            self.session.value("pgqueue_message_defer", **token(self.row), dequeue_at=dequeue_at, **parameters)
            is not None
        )

    def fail(self, error: str) -> None:
        self._ours(self.session.value("pgqueue_message_fail", **token(self.row), error={"message": error}))

    def _ours(self, done: bool) -> None:
        if not done:
            raise NotOursError


class NotOursError(Exception):
    """The attempt was lost."""
