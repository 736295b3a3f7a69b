"""What a worker could not take it reads again later and later."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.worker.claim import unknown, versions
from django_pgqueue.worker.claim.unknown import UnknownMessages
from django_pgqueue.worker.claim.versions import Versions
from tests.support.site.tasks import write

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db
TASK = write.module_path


class Worker:
    """The part of a worker that knows about unknown messages, without its loop, at times of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, version: str | None = None) -> None:
        self.now = 100.0
        for module in (unknown, versions):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.reads: list[float] = []
        monkeypatch.setattr(functions, "message_parked_calls", self.noted(functions.message_parked_calls))
        settings: Any = SimpleNamespace(queues=None, exclude_queues=(), burst=False, quarantine=False)
        session: Any = SimpleNamespace(statements=connection, consumer="w")
        polling: Any = SimpleNamespace(asleep=False, rests=False, notified=lambda: None, ends_rest=lambda: None)
        self.unknown = UnknownMessages(
            settings,
            session,
            fail_after_seconds=3600,
            polling=polling,
            versions=Versions(session, version),
            changed=lambda: None,
        )

    def noted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def noted_read(*args: Any, after: tuple[int, int], **more: Any) -> Any:
            if after == unknown.FIRST:
                self.reads.append(self.now)
            return read(*args, after=after, **more)

        return noted_read

    def claim(self) -> list[Any]:
        if self.unknown.wants:
            self.unknown.unpark(100)
        return functions.message_dequeue(connection, limit=100, worker="w", tasks=True)

    def refuse(self, message: Any) -> None:
        functions.message_park(connection, [(message, "cannot take these arguments")], worker="w")
        self.unknown.refused(message, "cannot take these arguments")

    def looks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.unknown.look_if_due()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def create(*args: Any, version: str | None = None, queue: str = "default") -> int:
    content = json.dumps({"args": args, "kwargs": {}})
    message = functions.NewMessage(content=content, task=TASK, version=version, queue=queue)
    return functions.enqueue(connection, message).id


def park_by_another(*ids: int, is_unknown: bool = True) -> None:
    held = functions.message_dequeue(connection, limit=len(ids), worker="other", tasks=True)
    assert {message.id for message in held} == set(ids)
    functions.message_park(connection, [(message, "a reason") for message in held], worker="other", unknown=is_unknown)


def deploy(version: str, *, seen: str = "now()", refuses: str | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_worker where id = %s", [version])
        row = f"(%s, {seen}, 1, 1, 'h', %s, %s)"
        cursor.execute(
            f"insert into pgqueue_worker (id, seen_at, pid, slots, hostname, version, refuses) values {row}",
            [version, version, None if refuses is None else [refuses]],
        )


def test_parked_messages_are_read_again_at_growing_intervals(worker: Worker) -> None:
    create(*range(9))
    [message] = worker.claim()
    worker.refuse(message)
    worker.looks(2300)
    waits = [round(later - earlier) for earlier, later in zip(worker.reads, worker.reads[1:], strict=False)]
    assert waits[:10] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600]
    assert set(waits[10:]) == {600}
    assert worker.claim() == [], "nothing was claimed for that"
    assert worker.unknown.refuses == [TASK]


def test_a_fitting_message_parked_meanwhile_is_taken_at_the_next_look(worker: Worker) -> None:
    create(*range(9))
    worker.refuse(*worker.claim())
    worker.looks(1000)
    fits, fits_not = create("a"), create(*range(8))
    park_by_another(fits, fits_not)
    worker.looks(1)
    assert worker.unknown.refuses == [], "no message of the task may fail before this one is taken"
    assert [message.id for message in worker.claim()] == [fits]
    worker.looks(1)
    assert worker.unknown.refuses == [TASK]


def test_content_that_is_no_call_is_taken_because_it_fails_everywhere(worker: Worker) -> None:
    create(*range(9))
    worker.refuse(*worker.claim())
    worker.looks(1)
    nonsense = functions.enqueue(connection, functions.NewMessage(content='"no call"', task=TASK)).id
    park_by_another(nonsense)
    worker.looks(1)
    assert [message.id for message in worker.claim()] == [nonsense]


def test_a_message_that_seemed_to_fit_and_was_refused_is_not_retried(worker: Worker) -> None:
    create("a")
    [message] = worker.claim()
    worker.refuse(message)
    worker.looks(2300)
    assert not worker.unknown.wants
    assert worker.unknown.refuses == [TASK]


def test_without_parked_messages_a_worker_lacks_nothing(worker: Worker) -> None:
    create(*range(9))
    [message] = worker.claim()
    worker.refuse(message)
    worker.looks(3)
    functions.message_cancel(connection, [message.id])
    worker.looks(3)
    assert worker.unknown.lacks == worker.unknown.refuses == []


def test_any_number_of_unknown_names_logs_a_bounded_number_of_lines(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(3 * unknown.MAX_NAMED):
        functions.enqueue(connection, functions.NewMessage(content='{"args": [], "kwargs": {}}', task=f"typo.t{n}"))
    while claimed := worker.claim():
        known, lacked = worker.unknown.sift(claimed)
        assert known == []
        functions.message_park(connection, lacked, worker="w")
    worker.looks(3)
    lines = [record.getMessage() for record in caplog.records if record.name == "django_pgqueue.worker"]
    assert len(lines) == unknown.MAX_NAMED + 1
    assert lines[-1] == "unknown tasks worker=w: others are not logged, see qstatus"
    assert len(worker.unknown.lacks) == 3 * unknown.MAX_NAMED


def test_a_line_of_another_queue_that_is_gone_keeps_no_message_from_failing(worker: Worker) -> None:
    create(*range(9))
    [message] = worker.claim()
    content = json.dumps({"args": list(range(9)), "kwargs": {}})
    functions.enqueue(connection, functions.NewMessage(content=content, task=TASK, queue="mail"))
    [other] = functions.message_dequeue(connection, limit=1, worker="w", tasks=True)
    worker.refuse(message)
    worker.unknown.refused(other, "cannot take these arguments")
    functions.message_fail(connection, other, error=functions.Error.of("elsewhere"))
    worker.looks(3)
    assert worker.unknown.refuses == [TASK]


def test_its_own_messages_are_found_behind_any_number_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch, "2")
    deploy("3")
    later = [create("a", version="3") for _ in range(unknown.PAGE + 100)]
    park_by_another(*later, is_unknown=False)
    worker.looks(100)
    assert worker.claim() == []
    refused, older = create("b", version="2"), create("c", version="1")
    park_by_another(refused, older)
    worker.looks(1)
    assert {message.id for message in worker.claim()} == {refused, older}
    assert worker.unknown.lacks == worker.unknown.refuses == []


def test_a_notified_sleeper_reads_all_parked_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch, "1")
    deploy("2")
    queues = [f"q{n:02}" for n in range(3 * unknown.MAX_READ_LINES)]
    park_by_another(*[create("a", version="2", queue=queue) for queue in queues], is_unknown=False)
    worker.looks(100)
    worker.unknown.polling.asleep = True
    for queue in queues:
        own = create("b", queue=queue)
        park_by_another(own)
        worker.now += 1
        worker.unknown.told()
        while worker.unknown.due_at() == 0:
            worker.unknown.look_if_due()
        assert [message.id for message in worker.claim()] == [own]


def test_a_worker_takes_messages_of_a_later_version_without_a_later_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch, "1")
    deploy("2")
    deploy("3")
    second, third = create("a", version="2"), create("b", version="3")
    park_by_another(second, third, is_unknown=False)
    worker.looks(1000)
    deploy("3", seen="now() - interval '61 seconds'")
    worker.looks(2)
    assert [message.id for message in worker.claim()] == [third], "a worker for the other one still lives"
    deploy("2", seen="now() - interval '61 seconds'")
    worker.looks(2)
    assert [message.id for message in worker.claim()] == [second]


def test_what_was_left_to_it_and_does_not_fit_is_tried_once_so_that_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker(monkeypatch, "2")
    create(*range(9))
    worker.refuse(*worker.claim())
    worker.looks(3)
    left = create(*range(8), version="2")
    park_by_another(left, is_unknown=False)
    worker.looks(1)
    assert worker.unknown.refuses == [], "it has not tried this one"
    [message] = worker.claim()
    assert (message.id, message.unknown) == (left, False)
    worker.refuse(message)
    worker.looks(1000)
    assert worker.claim() == []
    assert worker.unknown.refuses == [TASK]


def test_what_the_later_workers_refuse_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch, "1")
    deploy("2")
    left, refused = create("a", version="2"), create("b", version="2")
    park_by_another(left, is_unknown=False)
    park_by_another(refused)
    worker.looks(1000)
    assert worker.claim() == [], "a worker lives that may take both"
    deploy("2", refuses=TASK)
    worker.looks(2)
    [message] = worker.claim()
    assert (message.id, message.unknown) == (refused, True)
    assert worker.unknown.versions.sort([message]) == ([message], [])
    deploy("3")
    worker.looks(1)
    assert worker.unknown.versions.sort([message])[0] == [], "a later one may take it"
