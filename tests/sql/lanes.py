"""Words for tests of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.sessions import Session


def set_channel(session: Session, name: str = "acme", **limits: Any) -> None:
    session.call("pgqueue_channel_set", name=name, **limits)


def channel(session: Session, name: str = "acme") -> Any:
    """The row of a channel, or None."""
    return next(iter(session.rows("select * from pgqueue_channel where name = %s", [name])), None)


def lanes(session: Session, name: str = "acme") -> list[Any]:
    return session.rows("select * from pgqueue_lane where channel = %s order by queue, raw", [name])


def arrivals(session: Session) -> list[Any]:
    """What is noted and not yet worked in: (channel, ended, dequeue_at)."""
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


def contents(messages: list[Any]) -> list[Any]:
    return [message.content for message in messages]
