"""Messages that a worker does not know are given back, until one that knows them takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.words import died, see
from tests.support.sessions import NOON, Listener, token, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

OUT_OF_REACH = 2**63 - 2


# pgqueue_message_park: no worker that does not know a message meets it again


def claim(session: Session, limit: int = 1, worker: str = "w1") -> list[Any]:
    return session.dequeue(limit, worker=worker, tasks=True)


def park(session: Session, taken: list[Any], reason: str = "no such task") -> list[int]:
    return sorted(session.ids("pgqueue_message_park", **tokens(taken), reasons=[reason] * len(taken)))


def parked(session: Session, **columns: Any) -> int:
    """The id of a message that ``w1`` has parked."""
    message_id = session.create(**{"task": "t", **columns})
    assert park(session, claim(session)) == [message_id]
    return message_id


def register(
    session: Session, worker: str, *, lacks: Sequence[str] = (), refuses: Sequence[str] = (), **columns: Any
) -> None:
    see(session, worker, **{"asleep_ms": 10_000, **columns})
    session.call("pgqueue_worker_lacks", id=worker, lacks=list(lacks), refuses=list(refuses))


def test_no_dequeue_takes_a_parked_message_and_no_attempt_is_used(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session, max_attempts=1)
    message = session.message(message_id)
    assert (message.attempt, message.worker, message.unlock_at, message.locked_at) == (0, None, None, None)
    assert (message.parked_at, message.unknown_since, message.dequeue_at) == (NOON, NOON, OUT_OF_REACH)
    assert (message.in_line, message.last_error) == (False, "no such task")
    assert claim(session) == []
    assert session.history() == []


def test_each_message_has_its_own_reason(session: Session) -> None:
    for task in ("a", "b"):
        session.create(task=task)
    taken = claim(session, 2)
    session.ids("pgqueue_message_park", **tokens(taken), reasons=["no a", "no b"])
    assert {message.task: message.last_error for message in session.messages()} == {"a": "no a", "b": "no b"}


def test_unknown_since_stays_when_a_message_is_parked_again(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    session.set_clock(NOON + 5000)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert park(session, claim(session)) == [message_id]
    message = session.message(message_id)
    assert (message.unknown_since, message.parked_at) == (NOON, NOON + 5000)


@pytest.mark.parametrize("end", ["defer", "lose"])
def test_an_attempt_that_has_begun_clears_unknown_since(session: Session, end: str) -> None:
    message_id = parked(session)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    [held] = claim(session)
    if end == "defer":
        session.value("pgqueue_message_defer", **token(held))
    else:
        died(session, "w1", ended=[held])
    assert session.message(message_id).unknown_since is None


def test_the_result_omits_messages_that_the_worker_does_not_hold(session: Session) -> None:
    session.create_batch(2, task="t")
    ours, theirs = claim(session), claim(session, worker="w2")
    session.ids("pgqueue_message_park", **(tokens([*ours, *theirs]) | {"worker": "w1"}), reasons=["x", "x"])
    assert session.message(theirs[0].id) == theirs[0]
    assert session.message(ours[0].id).parked_at is not None


def test_a_message_asked_to_stop_is_cancelled(session: Session) -> None:
    session.create(task="t")
    taken = claim(session)
    session.ids("pgqueue_message_request_cancel", ids=[taken[0].id])
    assert park(session, taken) == [taken[0].id]
    assert session.messages() == []
    assert [attempt.status for attempt in session.history()] == ["cancelled"]


def test_a_parked_message_can_be_cancelled_with_its_own_time(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    assert session.ids("pgqueue_message_cancel", ids=[message_id]) == [message_id]
    [attempt] = session.history()
    assert (attempt.status, attempt.dequeue_at) == ("cancelled", NOON)


def test_a_parked_message_that_is_rescheduled_is_unparked(session: Session) -> None:
    message_id = parked(session)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id]) == [message_id]
    assert session.message(message_id).parked_at is None
    assert [message.id for message in claim(session)] == [message_id]


@pytest.mark.parametrize("on_conflict", ["debounce", "replace"])
def test_a_parked_message_that_is_enqueued_again_is_unparked(session: Session, on_conflict: str) -> None:
    unique: dict[str, Any] = {"unique_key": "k", "content": "tea", "task": "t", "on_conflict": on_conflict}
    session.call("pgqueue_message_create_unique", **unique)
    [held] = claim(session)
    park(session, [held])
    session.call("pgqueue_message_create_unique", **unique)
    assert [message.id for message in claim(session)] == [held.id]


def test_a_quarantined_message_is_not_taken_alone_while_it_is_parked(session: Session) -> None:
    session.create(task="t")
    [held] = claim(session)
    died(session, "w1", running=[held])
    alone = session.call("pgqueue_quarantine_dequeue", worker="w1")
    park(session, alone)
    assert not session.value("pgqueue_quarantine_waits")
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"])
    assert claim(session) == [], "it goes on to be taken alone"
    assert [message.id for message in session.call("pgqueue_quarantine_dequeue", worker="w1")] == [held.id]


def test_a_parked_message_frees_its_place_in_the_channel(session: Session) -> None:
    session.call("pgqueue_channel_set", name="c", max_concurrency=1)
    session.create(task="unknown", channel="c", priority=1)
    session.create(task="known", channel="c")
    park(session, claim(session))
    assert [message.task for message in claim(session, 5)] == ["known"]


def test_a_raw_message_is_only_released(session: Session) -> None:
    message_id = session.create()
    park(session, session.dequeue(1, worker="w1"))
    assert session.message(message_id).parked_at is None
    assert [message.id for message in session.dequeue(1)] == [message_id]


def test_parking_wakes_sleeping_workers_that_may_know_the_message(connect: Connect) -> None:
    session, ear = (
        connect(),
        Listener(connect(), *(f"pgqueue_{name}" for name in ("lacks", "refuses", "knows", "w1", "other", "raw"))),
    )
    register(session, "lacks", lacks=["t"])
    register(session, "refuses", refuses=["t"])
    register(session, "knows", lacks=["u"])
    register(session, "w1")
    register(session, "other", queues=["mail"])
    register(session, "raw", tasks=False)
    session.create(task="t")
    ear.heard(session)
    park(session, claim(session))
    assert ear.heard(session) == [("pgqueue_knows", "")]


# pgqueue_message_parked: which tasks have parked messages: for workers, which ask each second, and for people


def lines(session: Session, **parameters: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.call("pgqueue_message_parked", **parameters)]


def test_each_task_of_each_queue_is_returned_once(session: Session) -> None:
    session.set_clock(NOON)
    for task, queue in (("b", "default"), ("a", "default"), ("a", "mail"), ("a", "default")):
        parked(session, task=task, queue=queue)
    session.create(task="c")
    assert lines(session) == [
        ("default", "a", 2, NOON, "no such task", None),
        ("default", "b", 1, NOON, "no such task", None),
        ("mail", "a", 1, NOON, "no such task", None),
    ]


def test_it_continues_after_a_given_position(session: Session) -> None:
    for task in "abcd":
        parked(session, task=task)
    assert [line[1] for line in lines(session, limit=2)] == ["a", "b"]
    assert [line[1] for line in lines(session, limit=2, after_queue="default", after_task="b")] == ["c", "d"]


def test_it_counts_up_to_a_number(session: Session) -> None:
    for _ in range(3):
        parked(session)
    assert [line[2] for line in lines(session, count=2)] == [2]


def test_it_returns_the_earliest_unknown_since(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 1)
    parked(session)
    session.set_clock(NOON + 2)
    session.call("pgqueue_message_unpark", queues=["default"], tasks=["t"], limit=1)
    park(session, claim(session))  # the older one is now the one that was parked last
    assert [line[3] for line in lines(session)] == [NOON]


def test_it_is_empty_if_nothing_is_parked(session: Session) -> None:
    session.create(task="t")
    assert lines(session) == []


# pgqueue_message_parked_calls: a worker that cannot take all arguments of a task reads which ones it can take


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


# pgqueue_message_unpark: a worker that knows the tasks of parked messages takes them


def unpark(session: Session, *tasks: str, queue: str = "default", limit: int = 100) -> int:
    count: int = session.value("pgqueue_message_unpark", queues=[queue] * len(tasks), tasks=list(tasks), limit=limit)
    return count


def test_an_unparked_message_keeps_its_position(session: Session) -> None:
    session.set_clock(NOON)
    first = parked(session)
    session.set_clock(NOON + 10)
    second = session.create(task="t")
    assert unpark(session, "t") == 1
    assert session.message(first).dequeue_at == NOON
    assert [message.id for message in claim(session, 2)] == [first, second]


def test_other_tasks_and_other_queues_stay_parked(session: Session) -> None:
    parked(session, task="a")
    parked(session, task="b")
    parked(session, task="a", queue="mail")
    assert unpark(session, "a") == 1
    assert [(message.task, message.queue) for message in claim(session, 5)] == [("a", "default")]


def test_the_longest_parked_messages_come_first(session: Session) -> None:
    session.set_clock(NOON)
    first, second = parked(session), parked(session)
    session.set_clock(NOON + 1)
    unpark(session, "t", limit=1)
    [taken] = claim(session)
    assert taken.id == first
    park(session, [taken])
    unpark(session, "t", limit=1)
    assert [message.id for message in claim(session)] == [second], "the first one has had its turn"


def test_a_flood_of_one_task_leaves_another_its_share(session: Session) -> None:
    for _ in range(10):
        parked(session, task="flood")
    parked(session, task="other")
    assert unpark(session, "flood", "other", limit=4) == 3
    assert sorted(message.task for message in claim(session, 5)) == ["flood", "flood", "other"]


def test_rows_locked_by_another_session_are_left_for_the_next_call(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    message_id = parked(session)
    other.rows("select from pgqueue_message where id = %s for update", [message_id])
    assert unpark(session, "t") == 0
    other.rollback()
    assert unpark(session, "t") == 1


def test_unparked_in_a_claim_a_message_is_taken_by_no_other_worker(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    message_id = parked(session)
    session.commit()
    unpark(session, "t")
    assert [message.id for message in claim(session)] == [message_id]
    assert claim(other, worker="w2") == []
    session.commit()
    assert claim(other, worker="w2") == []


def test_messages_that_are_not_parked_stay_unchanged(session: Session) -> None:
    session.create(task="t", dequeue_at=NOON * 2)
    before = session.messages()
    assert unpark(session, "t") == 0
    assert session.messages() == before


def test_given_ids_are_unparked_beside_the_share_of_their_tasks(session: Session) -> None:
    first, second, third = (parked(session) for _ in range(3))
    waiting = session.create(task="t", dequeue_at=NOON * 10)
    chosen = {"queues": [], "tasks": [], "limit": 0, "ids": [third, waiting, 10**9]}
    assert session.value("pgqueue_message_unpark", **chosen) == 1
    assert session.message(waiting).dequeue_at == NOON * 10
    assert [message.id for message in claim(session, 5)] == [third]
    assert session.value("pgqueue_message_unpark", queues=["default"], tasks=["t"], limit=1, ids=[second]) == 2
    assert sorted(message.id for message in claim(session, 5)) == [first, second]


# pgqueue_message_unknown_fail: what no worker has known for a while fails, and the error names those who were asked


def fail(session: Session, *tasks: str, seconds: int = 60, limit: int = 100) -> int:
    count: int = session.value(
        "pgqueue_message_unknown_fail", queues=["default"] * len(tasks), tasks=list(tasks), seconds=seconds, limit=limit
    )
    return count


def test_an_unknown_message_fails_with_the_workers_and_the_last_reason(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    session.set_clock(NOON + 59_999)
    register(session, "w1", lacks=["t"])
    register(session, "w2", lacks=["s"], refuses=["t"], hostname="there")
    assert fail(session, "t") == 0
    session.set_clock(NOON + 60_000)
    assert fail(session, "t") == 1
    assert session.messages() == []
    [attempt] = session.history(message_id)
    assert (attempt.status, attempt.final, attempt.attempt, attempt.dequeue_at) == ("failed", True, 0, NOON)
    assert attempt.error_class == "django_pgqueue.exceptions.UnknownTask"
    assert "w1 on host, w2 on there" in attempt.error_message
    assert "no such task" in attempt.error_message
    assert attempt.error_message.startswith(
        "No worker has known the task t for 60 seconds. Living workers of the queue"
    )


def test_it_waits_for_a_living_worker_that_may_know_the_message(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 3_600_000)
    register(session, "lacks", lacks=["t"])
    register(session, "busy")
    assert fail(session, "t") == 0
    session.set_clock(NOON + 3_600_000 + 61_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 1, "the other one has not been seen for a minute"


def test_it_waits_for_a_worker_that_lacks_many_other_tasks(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    register(session, "lacks", lacks=["t"])
    register(session, "lacks others", lacks=[f"typo{n:03}" for n in range(60)])
    assert fail(session, "t") == 0


def test_a_resting_worker_counts_for_its_announced_time(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    register(session, "rests")
    session.rows("update pgqueue_worker set silent_until = %s", [NOON + 600_000])
    session.set_clock(NOON + 599_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 0
    session.set_clock(NOON + 601_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 1


def test_workers_of_other_queues_and_of_raw_messages_do_not_count(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    register(session, "w1", lacks=["t"])
    register(session, "mail", queues=["mail"])
    register(session, "not default", exclude_queues=["default"])
    register(session, "raw", tasks=False)
    assert fail(session, "t") == 1


def test_without_a_living_worker_no_message_fails(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    assert fail(session, "t") == 0


def test_each_task_has_its_share_of_a_call(session: Session) -> None:
    session.set_clock(NOON)
    for _ in range(5):
        parked(session, task="flood")
    parked(session, task="other")
    session.set_clock(NOON + 60_000)
    register(session, "w1", lacks=["flood", "other"])
    assert fail(session, "flood", "other", limit=4) == 3
    assert {message.task for message in session.messages()} == {"flood"}


def test_it_waits_for_no_other_session(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    message_id = parked(session)
    register(session, "w1", lacks=["t"])
    other.rows("select from pgqueue_message where id = %s for update", [message_id])
    assert fail(session, "t", seconds=0) == 0
    other.rollback()
    assert fail(session, "t", seconds=0) == 1
