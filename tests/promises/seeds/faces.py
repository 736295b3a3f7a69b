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

    def receive(self) -> SqlMessage | None:
        held = self.session.dequeue(queues=[self.name])
        return SqlMessage(self.session, held[0]) if held else None


class SqlMessage:
    def __init__(self, session: Session, row: Any) -> None:
        self.session, self.row = session, row
        self.id, self.content, self.attempt = row.id, row.content, row.attempt

    def complete(self) -> None:
        self._ours(self.session.value("pgqueue_message_complete", **token(self.row)))

    def defer(self, seconds: float, *, error: str) -> None:
        dequeue_at = self.session.one("select pgqueue_now()") + round(seconds * 1000)
        given = {**token(self.row), "dequeue_at": dequeue_at, "error": {"message": error}}
        self._ours(self.session.value("pgqueue_message_defer", **given) is not None)

    def fail(self, error: str) -> None:
        self._ours(self.session.value("pgqueue_message_fail", **token(self.row), error={"message": error}))

    def _ours(self, done: bool) -> None:
        if not done:
            raise NotOursError


class NotOursError(Exception):
    """The attempt was lost."""
