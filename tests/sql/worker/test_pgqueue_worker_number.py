"""The number of a worker's advisory lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_each_worker_of_a_queue_has_a_number_of_its_own(session: Session) -> None:
    numbers = session.column("select pgqueue_worker_number('w' || n) from generate_series(1, 1000) as n")
    assert len(set(numbers)) == 1000
    assert session.value("pgqueue_worker_number", id="w1") == numbers[0]


def test_a_queue_in_another_schema_has_other_numbers(session: Session) -> None:
    ours = session.value("pgqueue_worker_number", id="w")
    text = session.one("select pg_get_functiondef('pgqueue_worker_number'::regproc)")
    session.rows("create schema elsewhere")
    session.rows("create table elsewhere.pgqueue_message (id bigint)")
    session.rows("set local search_path = elsewhere")
    session.rows(text.replace("public", "elsewhere"))
    assert session.value("elsewhere.pgqueue_worker_number", id="w") != ours
