"""OPTIONS["VERSION"]: what a deploy enqueues is left to its workers while they live, and is never stuck."""

from __future__ import annotations

import datetime as dt
import json
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from django_pgqueue.functions import Line
from django_pgqueue.models import Attempt, Message
from django_pgqueue.worker.claim.versions import Versions
from tests.support.site.tasks import hold, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import started

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

OLD, NEW = "2024.9.1", "2024.10.1"
SHOP = "tests.worker.versions.shop"
GREET = SimpleNamespace(module_path=f"{SHOP}.greet")


def run(start: Start, version: str | None, *arguments: str, **parameters: Any) -> Any:
    return start(*(arguments or ("--threads", "2")), options={"VERSION": version}, **parameters)


def create(session: Session, *args: Any, version: str | None = NEW, task: Any = write, queue: str = "default") -> int:
    content = json.dumps({"args": list(args), "kwargs": {}})
    call = "select pgqueue_message_create(%s::jsonb, %s, p_task => %s, p_version => %s)"
    return int(session.value(call, content, queue, task.module_path, version))


def id_of(worker: Any) -> str:
    found: str = worker.output.partition("started worker=")[2].split()[0]
    return found


def runners(*ids: int) -> set[str]:
    """Waits until these messages have succeeded at once, and returns the workers that ran them."""
    wait_until(lambda: not Message.objects.filter(pk__in=ids).exists(), "all have ended", 60)
    attempts = list(Attempt.objects.filter(message_id__in=ids))
    assert {(one.status, one.attempt) for one in attempts} == {("succeeded", 1)}
    assert len(attempts) == len(ids)
    return {str(one.worker) for one in attempts}


def left(*ids: int) -> int:
    return Message.objects.filter(pk__in=ids, parked_at__isnull=False, unknown_since=None).count()


def presence(session: Session, version: str, **columns: Any) -> None:
    """The row of a worker that lives, and takes nothing."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)  # it lives for as long as the test takes
    row = {
        "id": f"busy-{version}",
        "seen_at": later,
        "pid": 1,
        "slots": 1,
        "hostname": "h",
        "version": version,
        "queues": None,
    } | columns
    names = ", ".join(row)
    places = ", ".join("%s" for _ in row)
    session.rows(f"insert into pgqueue_worker ({names}) values ({places})", *row.values())


def refuse(session: Session, *args: Any) -> int:
    """Creates a message of the older version, which the newer worker has given back because of its arguments."""
    with session.connection.transaction():
        message_id = create(session, *args, version=OLD)
        holds = "unlock_at = pgqueue_now() + 60000, locked_at = now(), worker = %s, attempt = 1"
        session.rows(f"update pgqueue_message set {holds} where id = %s", f"busy-{NEW}", message_id)
        park = "select pgqueue_message_park(array[%s]::bigint[], array[1], %s, array['cannot take'])"
        session.rows(park, message_id, f"busy-{NEW}")
    return message_id


def test_an_older_worker_leaves_a_newer_message_to_the_newer_worker(start: Start, session: Session) -> None:
    old, new = run(start, OLD), run(start, NEW)
    ids = [create(session, f"{n}") for n in range(30)]
    assert runners(*ids) == {id_of(new)}
    ids = [create(session, f"{n}", version=version) for n in range(20) for version in (OLD, None)]
    assert runners(*ids) <= {id_of(old), id_of(new)}
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_newer_message_waits_while_the_newer_worker_is_busy(start: Start, session: Session, diary: Diary) -> None:
    new = run(start, NEW, "--threads", "1")
    held = create(session, "x", task=hold)
    started(diary, "x")
    run(start, OLD)
    ids = [create(session, f"{n}") for n in range(5)]
    wait_until(lambda: left(*ids) == 5, "all are left to the newer worker")
    mine = create(session, "mine", version=OLD)
    assert runners(mine) != {id_of(new)}
    assert left(*ids) == 5
    diary.allow("x-1")
    assert runners(held, *ids) == {id_of(new)}


def test_after_a_rollback_the_older_worker_takes_the_newer_message(
    start: Start, session: Session, diary: Diary
) -> None:
    new, old = run(start, NEW, "--threads", "1"), run(start, OLD)
    create(session, "x", task=hold)
    started(diary, "x")
    ids = [create(session, f"{n}") for n in range(5)]
    wait_until(lambda: left(*ids) == 5, "all are left to the newer worker")
    diary.allow("x-1")
    new.stop()
    assert runners(*ids) <= {id_of(old), id_of(new)}
    assert runners(create(session, "y")) == {id_of(old)}


def test_a_newer_worker_that_crashed_blocks_no_message(start: Start, session: Session) -> None:
    presence(session, NEW)
    old = run(start, OLD)
    message_id = create(session, "x")
    wait_until(lambda: left(message_id) == 1, "it is left to the newer worker")
    session.rows("update pgqueue_worker set seen_at = now() - interval '61 seconds' where version = %s", NEW)
    assert runners(message_id) == {id_of(old)}


def test_a_newer_worker_of_other_queues_or_without_the_task_blocks_no_message(start: Start, session: Session) -> None:
    presence(session, NEW, id="a", queues=["other"])
    presence(session, NEW, id="b", exclude_queues=["default"])
    presence(session, NEW, id="c", lacks=[write.module_path])
    presence(session, NEW, id="d", tasks=False)
    presence(session, "2024.9.30", id="e")
    old = run(start, OLD)
    assert runners(create(session, "x")) == {id_of(old)}


def test_a_newer_worker_that_lacks_many_other_tasks_is_waited_for(start: Start, session: Session) -> None:
    presence(session, NEW, lacks=[f"typo.t{n:03}" for n in range(50)])
    run(start, OLD)
    message_id = create(session, "x")
    wait_until(lambda: left(message_id) == 1 or Attempt.objects.exists(), "it is left, or has run")
    assert not Attempt.objects.exists()


def test_a_newer_worker_that_refuses_some_arguments_is_waited_for(start: Start, session: Session) -> None:
    presence(session, NEW, refuses=[write.module_path])
    run(start, OLD)
    message_id = create(session, "x")
    wait_until(lambda: left(message_id) == 1 or Attempt.objects.exists(), "it is left, or has run")
    assert not Attempt.objects.exists()


def test_arguments_that_nobody_takes_do_not_open_the_task_to_older_workers(
    start: Start, session: Session, diary: Diary
) -> None:
    new = run(start, NEW, "--threads", "1")
    unfit = [create(session, 1, 2, 3, 4, 5)]
    old = run(start, OLD)
    both = [[write.module_path]] * 2
    refuses = "select array_agg(refuses) from pgqueue_worker where refuses is not null"
    wait_until(lambda: session.value(refuses) == both, "both have recorded that they refuse it")
    held = create(session, "x", task=hold)
    started(diary, "x")
    ids = [create(session, f"{n}") for n in range(5)]
    unfit.append(create(session, 1, 2, 3, 4))
    wait_until(lambda: left(*ids, unfit[1]) == 6, "all are left to the newer worker")
    diary.allow("x-1")
    assert runners(held, *ids) == {id_of(new)}
    unknown = Message.objects.filter(pk__in=unfit, unknown_since__isnull=False)
    wait_until(lambda: unknown.count() == 2, "it has refused the other one, too")
    wait_until(lambda: session.value(refuses) == both, "both have recorded it")
    assert (old.stop(), new.stop()) == (0, 0)


def test_what_the_newer_worker_refuses_runs_on_an_older_one_that_takes_it(start: Start, session: Session) -> None:
    old, new = (
        run(start, version, PGQUEUE_TEST_IMPORTS=SHOP, PGQUEUE_TEST_VERSION=code)
        for version, code in ((OLD, "1"), (NEW, "2"))
    )
    of_old, of_new = [], []
    for n in range(20):
        of_old.append(create(session, f"customer {n}", task=GREET))
        of_new.append(create(session, f"customer {n}", "Hi", task=GREET))
    assert runners(*of_old) == {id_of(old)}
    assert runners(*of_new) == {id_of(new)}
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_worker_without_a_version_takes_everything(start: Start, session: Session) -> None:
    presence(session, NEW)
    worker = run(start, None)
    assert runners(create(session, "x")) == {id_of(worker)}


@pytest.mark.parametrize("own", [None, OLD])
def test_messages_without_a_version_cause_no_version_query(own: str | None) -> None:
    versions = Versions(cast("Any", None), own)  # which has no connection to ask with
    claimed = [cast("Any", SimpleNamespace(id=n, version=None)) for n in range(3)]
    rest, later = versions.split(claimed)
    assert rest is claimed
    assert later == []
    assert not versions.leaves(Line("default", "t"), None)


def test_a_newer_message_is_never_unknown(start: Start, session: Session) -> None:
    """Whatever UNKNOWN_TASK_SECONDS says, and how long it waits."""
    presence(session, NEW)
    run(start, OLD)
    ids = [create(session, f"{n}") for n in range(3)]
    wait_until(lambda: left(*ids) == 3, "it is left")
    session.rows("update pgqueue_message set parked_at = 1")
    seen = "select seen_at from pgqueue_worker where version = %s"
    for _ in range(2):
        last = session.value(seen, OLD)
        wait_until(lambda last=last: session.value(seen, OLD) > last, "the worker has looked")  # type: ignore[misc]
    assert left(*ids) == 3
    assert not Attempt.objects.exists()


def test_an_older_worker_claims_a_flood_of_newer_messages_once(start: Start, session: Session) -> None:
    """Work, not time: a claim, a release and a parking are three versions of a row."""
    presence(session, NEW)
    session.rows("select pg_stat_force_next_flush()")
    written = "select n_tup_upd from pg_stat_user_tables where relname = 'pgqueue_message'"
    before = session.value(written)
    session.rows(
        "insert into pgqueue_message (task, content, dequeue_at, version) "
        'select %s, \'{"args": [], "kwargs": {}}\', 0, %s from generate_series(1, 3000)',
        nothing.module_path,
        NEW,
    )
    behind = create(session, "behind", version=OLD)
    old = run(start, OLD, "--threads", "4")
    runners(behind)
    wait_until(lambda: not Message.objects.filter(parked_at=None).exists(), "all are parked")
    session.rows("select pg_stat_force_next_flush()")
    assert old.stop() == 0
    wait_until(lambda: session.value(written) - before >= 9000, "the statistics are written")
    assert session.value(written) - before <= 3 * 3000 + 300, "none of them is tried again"


def test_a_flood_of_a_newer_version_runs_on_the_newer_worker(start: Start, session: Session) -> None:
    old = run(start, OLD, "--threads", "4")
    new = run(start, NEW, "--threads", "4")
    session.rows(
        "insert into pgqueue_message (task, content, dequeue_at, version) "
        'select %s, \'{"args": [], "kwargs": {}}\', 0, %s from generate_series(1, 1000)',
        nothing.module_path,
        NEW,
    )
    wait_until(lambda: not Message.objects.exists(), "all have run", 120)
    by = set(Attempt.objects.values_list("status", "attempt", "worker"))
    assert by == {("succeeded", 1, id_of(new))}
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_message_that_a_later_worker_refuses_does_not_wait_behind_its_others(start: Start, session: Session) -> None:
    presence(session, NEW)
    old = run(start, OLD)
    ids = [create(session, f"{n}") for n in range(200)]
    wait_until(lambda: left(*ids) == 200, "all are left to the newer worker")
    refused = refuse(session, "refused")
    assert runners(refused) == {id_of(old)}
    assert left(*ids) == 200


def test_with_three_versions_each_worker_takes_its_own_messages(start: Start, session: Session) -> None:
    """The oldest worker parks what is of either of the others; the middle one reads which of it is its own."""
    presence(session, "3")
    oldest, middle = run(start, "1"), run(start, "2")
    latest = [create(session, f"late {n}", version="3") for n in range(30)]
    wait_until(lambda: left(*latest) == 30, "all are left to the latest worker")
    own = [create(session, f"own {n}", version="2") for n in range(30)]
    assert runners(*own) == {id_of(middle)}
    assert left(*latest) == 30
    session.rows("delete from pgqueue_worker where version = '3'")
    assert runners(*latest) <= {id_of(oldest), id_of(middle)}
    assert (oldest.stop(), middle.stop()) == (0, 0)


def test_messages_left_to_a_newer_worker_become_unknown_if_it_refuses_them(start: Start, session: Session) -> None:
    """A worker that only reads a line says what it cannot take of it."""
    presence(session, NEW, lacks=["another"])
    old = run(start, OLD)
    ids = [create(session, f"{n}") for n in range(3)]
    wait_until(lambda: left(*ids) == 3, "all are left to the newer worker")
    refuse(session, 1, 2, 3, 4, 5)
    refuses = "select coalesce(refuses, '{}') from pgqueue_worker where id = %s"
    wait_until(lambda: session.value(refuses, id_of(old)) == [write.module_path], "it has recorded it")
    assert old.stop() == 0


def test_a_quarantined_newer_message_is_left_too(start: Start, session: Session) -> None:
    message_id = create(session, "x")
    session.rows("update pgqueue_message set alone_at = dequeue_at, dequeue_at = 9223372036854775807, lost = 2")
    presence(session, NEW)
    run(start, OLD)
    wait_until(lambda: left(message_id) == 1, "it is left")
    session.rows("delete from pgqueue_worker where id = %s", f"busy-{NEW}")
    runners(message_id)


def test_a_worker_killed_in_a_rollout_takes_nothing_with_it(start: Start, session: Session, diary: Diary) -> None:
    new, old = run(start, NEW), run(start, OLD)
    held = create(session, "x", task=hold)
    started(diary, "x")
    [child] = new.children
    new.send_to(child, signal.SIGKILL)
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    wait_until(lambda: not Message.objects.filter(pk=held).exists(), "it has ended")
    assert [one.status for one in Attempt.objects.filter(message_id=held).order_by("id")] == ["lost", "succeeded"]
    assert old.stop() == 0


def test_messages_of_a_project_have_its_version(settings: Any, session: Session) -> None:
    [alias, *_] = settings.TASKS
    one = settings.TASKS[alias]
    settings.TASKS = {**settings.TASKS, alias: {**one, "OPTIONS": {**one.get("OPTIONS", {}), "VERSION": NEW}}}
    result = write.enqueue("x")
    assert Message.objects.get(pk=int(result.id)).version == NEW
    many = write.using(unique_key=True).enqueue("y")
    assert Message.objects.get(pk=int(many.id)).version == NEW
