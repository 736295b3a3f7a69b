"""The load of the demo: all pages and commands say what is true of it, and it goes as it came."""

from __future__ import annotations

import datetime as dt
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue import functions
from example_project.shop.load import check, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

SIZE = {"messages": 3_000, "attempts": 10_000, "queues": 12, "channels": 20}


def rows(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def days() -> set[str]:
    return {
        name
        for (name,) in rows(
            "select inhrelid::regclass::text from pg_inherits where inhparent = 'pgqueue_attempt'::regclass"
        )
    }


@pytest.fixture
def loaded() -> Iterator[None]:
    """Its days of the history are dropped again: other tests know which there are."""
    before = days()
    rows("insert into pgqueue_message (queue, dequeue_at, content) values ('mine', 0, '{}') returning id")
    load(**SIZE)
    yield
    for day in days() - before:
        with connection.cursor() as cursor:
            cursor.execute(f"drop table {day}")


def load(**options: Any) -> str:
    output = StringIO()
    call_command("demo_load", into=connection.settings_dict["NAME"], stdout=output, **options)
    return output.getvalue()


def test_a_database_that_is_not_the_demos_has_to_be_named() -> None:
    name = connection.settings_dict["NAME"]
    with pytest.raises(CommandError, match=f"is not the demo's own. If you mean it, add: --into {name}"):
        call_command("demo_load")
    with pytest.raises(CommandError, match=f"--into shop is not the database: it is '{name}'"):
        call_command("demo_load", into="shop")
    with pytest.raises(CommandError, match="--queues 0 is not a number from 1 to 1,000"):
        load(queues=0)


def late(_: object) -> None:
    rows("set local statement_timeout = '20ms'; select pg_sleep(60)")


def test_everybody_says_what_is_true_of_the_load_and_it_goes_as_it_came(
    loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check.compared()
    assert not check.wrong(found)
    said = [one for each in found for one in each.said]
    assert {one.who for one in said} == {"overview", "qstatus", "qdoctor", "/metrics"}
    assert all(one.is_exact for one in said), "few enough to be counted"
    true = {(one.queue, one.figure): one.high for one in found}
    assert all(any(number for (_, figure), number in true.items() if figure == each) for each in check.FIGURES), true
    ready = [number for (_, figure), number in true.items() if figure == "ready"]
    assert 0.4 < true["load-bulk", "ready"] / sum(ready) < 0.7
    monkeypatch.setattr(functions, "lakes", late)
    printed = load(check=True)
    assert "Wrong: 0." in printed
    assert "/metrics has not answered, and was not compared" in printed

    assert not rows("select from pgqueue_attempt_default")
    [[first, last]] = rows("select min(finished_at), max(finished_at) from pgqueue_attempt")
    assert dt.timedelta(days=6) < last - first < dt.timedelta(days=8)
    [[groups]] = rows(
        "select count(distinct pgqueue_attempt_error_group(error_class, error_message, traceback)) from pgqueue_attempt"
    )
    assert groups > 5

    for page in pages.measured(1):
        assert page.status == 200, page.url

    before = rows(
        "select state, count(*) from (select queue, unlock_at is null as state from pgqueue_message) as m group by 1"
    )
    load(**SIZE)
    assert before == rows(
        "select state, count(*) from (select queue, unlock_at is null as state from pgqueue_message) as m group by 1"
    ), "made anew, and not once more"
    rows("select pgqueue_message_cancel(array(select id from pgqueue_message where queue = 'load-bulk' limit 1))")
    assert not check.wrong(check.compared()), "with an end beside the workers, which they add up later"
    load(clear=True)
    assert rows("select queue from pgqueue_message") == [("mine",)]
    for table in ("attempt", "rollup", "worker", "channel", "lane", "arrival", "queue", "approval", "step"):
        assert not rows(f"select from pgqueue_{table}"), table
