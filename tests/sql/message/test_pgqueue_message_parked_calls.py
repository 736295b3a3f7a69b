"""A worker that cannot take all arguments of a task reads which ones it can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.message.test_pgqueue_message_park import parked
from tests.support.sessions import NOON, tokens

if TYPE_CHECKING:
    from tests.support.sessions import Session


def calls(session: Session, task: str = "t", **more: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.call("pgqueue_message_parked_calls", queue="default", task=task, **more)]


def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs}


def test_it_returns_the_number_of_args_and_the_names_of_kwargs(session: Session) -> None:
    session.set_clock(NOON)
    first = parked(session, content=call(1, [2]))
    second = parked(session, content=call(b=1, a={}))
    [one, two] = calls(session)
    assert one == (first, NOON, 2, [], None, True)
    assert (two[0], two[2], sorted(two[3])) == (second, 0, ["a", "b"])


def test_it_returns_the_version_of_the_enqueue(session: Session) -> None:
    parked(session, version="2024.10.1")
    [(*_, version, _)] = calls(session)
    assert version == "2024.10.1"


def test_it_says_whether_a_worker_could_not_take_it(session: Session) -> None:
    parked(session)
    session.create(task="t")
    left = session.dequeue(1, worker="w1", tasks=True)
    session.call("pgqueue_message_park", **tokens(left), reasons=["later"], unknown=False)
    assert {row[0]: row[-1] for row in calls(session)} == {row[0]: row[0] != left[0].id for row in calls(session)}


@pytest.mark.parametrize(
    "content", [None, 1, "args", [], {}, {"args": []}, {"args": {}, "kwargs": {}}, {"args": [], "kwargs": []}]
)
def test_content_that_is_no_call_has_neither(session: Session, content: Any) -> None:
    message_id = parked(session, content=content)
    assert [(row[0], *row[2:4]) for row in calls(session)] == [(message_id, None, None)]


def test_pages_follow_each_other(session: Session) -> None:
    session.set_clock(NOON)
    ids = [parked(session) for _ in range(3)]
    session.set_clock(NOON + 1)
    ids += [parked(session) for _ in range(2)]
    parked(session, task="another")
    parked(session, queue="mail")
    read: list[int] = []
    after: dict[str, Any] = {}
    while page := calls(session, limit=2, **after):
        read += [row[0] for row in page]
        after = {"after_parked_at": page[-1][1], "after_id": page[-1][0]}
    assert read == ids


def test_at_most_a_thousand_names_are_returned(session: Session) -> None:
    parked(session, content=call(**{f"n{n}": 1 for n in range(2000)}))
    [(*_, names, _, _)] = calls(session)
    assert len(names) == 1000
