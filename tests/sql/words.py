"""Words for what many tests do: with workers, with channels, and with exchanges and bindings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.sessions import SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


T = TypeVar("T")
WORKER: dict[str, Any] = {"queues": None, "exclude_queues": [], "hostname": "host", "pid": 7, "slots": 4}


def see(session: Session, worker: str = "host-1", **changes: Any) -> None:
    session.call("pgqueue_worker_seen", id=worker, **{**WORKER, **changes})


@contextmanager
def behind_policy(session: Session, table: str, sees: str) -> Iterator[None]:
    """A transaction, which is rolled back, of a role that row-level security shows some rows of a table."""
    statements = (
        "begin",
        "create role pgqueue_test_tenant",
        "grant select, insert, update, delete on all tables in schema public to pgqueue_test_tenant",
        f"alter table {table} enable row level security",
        f"create policy own on {table} using ({sees}) with check (true)",
        "set local role pgqueue_test_tenant",
        "set local statement_timeout = '10s'",
    )
    try:
        for statement in statements:
            session.rows(statement)
        yield
    finally:
        session.rows("rollback")


@contextmanager
def hold(connect: Connect, worker: str) -> Iterator[Session]:
    """A session that holds the advisory lock of the worker, and ends."""
    session = connect()
    assert session.value("pgqueue_worker_hold", id=worker) is True
    yield session
    session.connection.close()


def worker(session: Session, worker_id: str = "host-1") -> Any:
    [row] = session.rows("select * from pgqueue_worker where id = %s", [worker_id])
    return row


def died(session: Session, worker: str = "dead", *, running: Iterable[Any] = (), ended: Iterable[Any] = ()) -> int:
    """The worker is dead: these messages were running, those have ended, and all others had not begun."""
    begun = [(message, True) for message in running] + [(message, False) for message in ended]
    lost: int = session.value(
        "pgqueue_worker_died",
        worker=worker,
        ids=[message.id for message, _ in begun],
        attempts=[message.attempt for message, _ in begun],
        running=[runs for _, runs in begun],
    )
    return lost


def set_channel(session: Session, name: str = "acme", **limits: Any) -> None:
    session.call("pgqueue_channel_set", name=name, **limits)


def channel(session: Session, name: str = "acme") -> Any:
    """The row of a channel, or None."""
    return next(iter(session.rows("select * from pgqueue_channel where name = %s", [name])), None)


def lanes(session: Session, name: str = "acme") -> list[Any]:
    return session.rows("select * from pgqueue_lane where channel = %s order by queue, raw", [name])


def arrivals(session: Session) -> list[Any]:
    """Notes that are not yet worked in: (channel, ended, dequeue_at)."""
    return [tuple(row) for row in session.rows("select channel, ended, dequeue_at from pgqueue_arrival order by id")]


def drifted(session: Session) -> list[Any]:
    """The channels whose count is not what a recount gives: (channel, counted, recounted)."""
    return session.rows("""
        select c.name, c.running - coalesce(sum(a.ended), 0) as counted, r.running as recounted
        from pgqueue_channel c
        left join pgqueue_arrival a on a.channel = c.name
        cross join lateral (
            select count(*) as running from pgqueue_message m where m.channel = c.name and m.unlock_at is not null
        ) as r
        group by c.name, c.running, r.running
        having c.running - coalesce(sum(a.ended), 0) <> r.running
    """)


def floors(*each: tuple[str, int, int, int]) -> dict[str, Any]:
    """Where a dequeue begins: (queue, priority, dequeue_at, id)."""
    queues, priorities, dequeue_ats, ids = [list(column) for column in zip(*each, strict=True)] or [[], [], [], []]
    return {
        "floor_queues": queues,
        "floor_priorities": priorities,
        "floor_dequeue_ats": dequeue_ats,
        "floor_ids": ids,
    }


def contents(messages: list[Any]) -> list[Any]:
    return [message.content for message in messages]


def bind(session: Session, pattern: str, queue: str = "mail", exchange: str = "orders", **parameters: Any) -> Any:
    """Binds a queue to an exchange, which is made, and answers ``p_id`` and ``p_changed``."""
    session.value("pgqueue_exchange_declare", name=exchange)
    [answer] = session.call("pgqueue_binding_declare", exchange=exchange, pattern=pattern, queue=queue, **parameters)
    return answer


def publish(session: Session, routing_key: str = "order.created", content: Any = "tea", **parameters: Any) -> list[Any]:
    given = {"exchange": "orders", "routing_key": routing_key, "content": content, **parameters}
    return session.call("pgqueue_message_publish", **given)


def route(session: Session, routing_key: str, exchange: str = "orders") -> list[Any]:
    return session.call("pgqueue_exchange_route", exchange=exchange, routing_key=routing_key)


def queues(session: Session, routing_key: str) -> list[str]:
    return [row.p_queue for row in route(session, routing_key)]


def behind(transaction: Session, waiting: Session, call: Callable[[], T], *, commits: bool = True) -> T:
    """The answer of a call that waits for a transaction, which ends as soon as it waits."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        eventually(lambda: transaction.waits_for_a_lock(waiting))
        transaction.commit() if commits else transaction.rollback()
        return answer.result(SECONDS)
