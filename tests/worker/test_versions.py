"""OPTIONS["VERSION"]: what a deploy enqueues is left to its workers while they live, and is never stuck."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from django_pgqueue.functions import Line
from django_pgqueue.models import Attempt, Message, Worker
from django_pgqueue.worker.claim.versions import Versions
from tests.support.site.tasks import hold, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import started
from tests.worker.test_unknown import NOBODY, SHOP, flood

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

OLD, NEW = "2024.9.1", "2024.10.1"
GREET = SimpleNamespace(module_path=f"{SHOP}.greet")


def run(start: Start, version: str | None, *arguments: str, **parameters: Any) -> Any:
    worker = start(*(arguments or ("--threads", "2")), options={"VERSION": version}, **parameters)
    if version is not None:  # recorded after its row, and others read it once a second
        wait_until(lambda: Worker.objects.filter(pk=worker.id, version=version).exists(), "it has said its version")
    return worker


def set_version(settings: Any, version: str) -> None:
    """The version of what this process enqueues, and of workers inside it."""
    [alias, *_] = settings.TASKS
    one = settings.TASKS[alias]
    settings.TASKS = {**settings.TASKS, alias: {**one, "OPTIONS": {**one.get("OPTIONS", {}), "VERSION": version}}}


def create(session: Session, *args: Any, version: str | None = NEW, task: Any = write, queue: str = "default") -> int:
    content = json.dumps({"args": list(args), "kwargs": {}})
    call = "select pgqueue_message_create(%s::jsonb, %s, p_task => %s, p_version => %s)"
    return int(session.value(call, content, queue, task.module_path, version))


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
    row = {"id": f"busy-{version}", "seen_at": later, "version": version} | columns
    names, places = ", ".join(row), ", ".join("%s" for _ in row)
    session.rows(
        f"insert into pgqueue_worker (hostname, pid, slots, {names}) values ('h', 1, 1, {places})", *row.values()
    )


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
    assert runners(*ids) == {new.id}
    ids = [create(session, f"{n}", version=version) for n in range(20) for version in (OLD, None)]
    assert runners(*ids) <= {old.id, new.id}
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_newer_message_waits_while_the_newer_worker_is_busy(start: Start, session: Session, diary: Diary) -> None:
    new = run(start, NEW, "--threads", "1")
    held = create(session, "x", task=hold)
    started(diary, "x")
    run(start, OLD)
    ids = [create(session, f"{n}") for n in range(5)]
    wait_until(lambda: left(*ids) == 5, "all are left to the newer worker")
    mine = create(session, "mine", version=OLD)
    assert runners(mine) != {new.id}
    assert left(*ids) == 5
    diary.allow("x-1")
    assert runners(held, *ids) == {new.id}


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
    assert runners(*ids) <= {old.id, new.id}
    assert runners(create(session, "y")) == {old.id}


def test_a_newer_worker_that_crashed_blocks_no_message(start: Start, session: Session) -> None:
    presence(session, NEW)
    old = run(start, OLD)
    message_id = create(session, "x")
    wait_until(lambda: left(message_id) == 1, "it is left to the newer worker")
    session.rows("update pgqueue_worker set seen_at = now() - interval '61 seconds' where version = %s", NEW)
    assert runners(message_id) == {old.id}


def test_a_newer_worker_of_other_queues_or_without_the_task_blocks_no_message(start: Start, session: Session) -> None:
    presence(session, NEW, id="a", queues=["other"])
    presence(session, NEW, id="b", exclude_queues=["default"])
    presence(session, NEW, id="c", lacks=[write.module_path])
    presence(session, NEW, id="d", tasks=False)
    presence(session, "2024.9.30", id="e")
    old = run(start, OLD)
    assert runners(create(session, "x")) == {old.id}


@pytest.mark.parametrize(
    "columns",
    [{"lacks": [f"typo.t{n:03}" for n in range(50)]}, {"refuses": [write.module_path]}],
    ids=["it lacks many others", "it refuses some arguments"],
)
def test_a_newer_worker_that_may_take_the_message_is_waited_for(
    start: Start, session: Session, columns: dict[str, Any]
) -> None:
    presence(session, NEW, **columns)
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
    assert runners(held, *ids) == {new.id}
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
    assert runners(*of_old) == {old.id}
    assert runners(*of_new) == {new.id}
    assert (old.stop(), new.stop()) == (0, 0)


def test_a_worker_without_a_version_takes_everything(start: Start, session: Session) -> None:
    presence(session, NEW)
    worker = run(start, None)
    assert runners(create(session, "x")) == {worker.id}


@pytest.mark.parametrize("own", [None, OLD])
def test_messages_without_a_version_cause_no_version_query(own: str | None) -> None:
    versions = Versions(cast("Any", None), own)  # which has no connection to ask with
    claimed = [cast("Any", SimpleNamespace(id=n, version=None)) for n in range(3)]
    rest, later = versions.split(claimed)
    assert rest is claimed
    assert later == []
    assert not versions.leaves(Line("default", "t"), None)


@pytest.mark.parametrize(
    ("task", "version"), [(nothing.module_path, NEW), (NOBODY, None)], ids=["of a newer version", "of an unknown task"]
)
def test_a_worker_claims_each_message_of_a_flood_for_others_once(
    start: Start, session: Session, task: str, version: str | None
) -> None:
    """Work, not time: a claim, a release and a parking are three versions of a row."""
    presence(session, NEW)
    session.tell_statistics()
    written = "select n_tup_upd from pg_stat_user_tables where relname = 'pgqueue_message'"
    before = session.value(written)
    flood(session, 3000, task=task, version=version)
    behind = create(session, "behind", version=OLD)
    old = run(start, OLD, "--threads", "4")
    runners(behind)
    wait_until(lambda: not Message.objects.filter(parked_at=None).exists(), "all are parked")
    session.tell_statistics()
    assert old.stop() == 0
    wait_until(lambda: session.value(written) - before >= 9000, "the statistics are written")
    assert session.value(written) - before <= 3 * 3000 + 300, "none of them is tried again"


def test_a_message_that_a_later_worker_refuses_does_not_wait_behind_its_others(start: Start, session: Session) -> None:
    presence(session, NEW)
    old = run(start, OLD)
    ids = [create(session, f"{n}") for n in range(200)]
    wait_until(lambda: left(*ids) == 200, "all are left to the newer worker")
    refused = refuse(session, "refused")
    assert runners(refused) == {old.id}
    assert left(*ids) == 200


def test_messages_left_to_a_newer_worker_become_unknown_if_it_refuses_them(start: Start, session: Session) -> None:
    """A worker that only reads a line says what it cannot take of it."""
    presence(session, NEW, lacks=["another"])
    old = run(start, OLD)
    ids = [create(session, f"{n}") for n in range(3)]
    wait_until(lambda: left(*ids) == 3, "all are left to the newer worker")
    refuse(session, 1, 2, 3, 4, 5)
    refuses = "select coalesce(refuses, '{}') from pgqueue_worker where id = %s"
    wait_until(lambda: session.value(refuses, old.id) == [write.module_path], "it has recorded it")
    assert old.stop() == 0


def test_a_quarantined_newer_message_is_left_too(start: Start, session: Session) -> None:
    message_id = create(session, "x")
    session.rows("update pgqueue_message set alone_at = dequeue_at, dequeue_at = 9223372036854775807, lost = 2")
    presence(session, NEW)
    run(start, OLD)
    wait_until(lambda: left(message_id) == 1, "it is left")
    session.rows("delete from pgqueue_worker where id = %s", f"busy-{NEW}")
    runners(message_id)


def test_messages_of_a_project_have_its_version(settings: Any, session: Session) -> None:
    set_version(settings, NEW)
    result = write.enqueue("x")
    assert Message.objects.get(pk=int(result.id)).version == NEW
    many = write.using(unique_key=True).enqueue("y")
    assert Message.objects.get(pk=int(many.id)).version == NEW
