"""What is committed runs, what is rolled back does not."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from django.db import connection, transaction

from django_pgqueue.models import Attempt, Message
from tests.support.site.tasks import write, write_row
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


def test_a_rolled_back_enqueue_never_runs(start: Start, diary: Diary) -> None:
    start("--threads", "1")
    with transaction.atomic():
        write.enqueue("rolled back")
        transaction.set_rollback(True)
    write.enqueue("committed")
    wait_until(lambda: "committed" in diary.words(), "the committed job runs")
    assert diary.words() == ["committed"]
    wait_until(lambda: not Message.objects.exists(), "the queue is empty")
    assert Attempt.objects.count() == 1


@pytest.mark.slow
def test_nothing_committed_is_lost_and_each_attempt_is_valid_once(start: Start, rows: str, session: Session) -> None:
    """Thousands of jobs from several threads, some rolled back, while processes with several threads run them."""
    worker = start("--processes", "2", "--threads", "4", "-v", "0", ready=False)
    committed: list[str] = []

    def enqueue(name: str) -> None:
        for batch in range(100):
            words = [f"{name}-{batch}-{n}" for n in range(10)]
            changed_mind = batch % 7 == 3
            with transaction.atomic():
                for word in words:
                    write_row.enqueue(word)
                transaction.set_rollback(changed_mind)
            if not changed_mind:
                committed.extend(words)
        connection.close()

    threads = [threading.Thread(target=enqueue, args=[f"thread {n}"]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: not Message.objects.exists(), "the queue is empty", 60)

    assert len(committed) > 3000
    written = Counter(word for [word] in session.rows(f"select word from {rows}"))
    assert written == Counter(committed)
    history = Attempt.objects.values_list("message_id", "attempt", "status", "final")
    assert {row[1:] for row in history} == {(1, "succeeded", True)}
    assert len(history) == len({row[0] for row in history}) == len(committed)
    assert len(set(Attempt.objects.values_list("worker", flat=True))) == 2
    assert worker.stop() == 0
