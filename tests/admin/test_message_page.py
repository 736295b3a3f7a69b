from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django.db import connection

from django_pgqueue import functions
from django_pgqueue.admin.parts.expressions import PRETTY_LENGTH
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, claim, complete, retry, send, sign_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.testing import Clock
    from tests.support.admin_page import Element, Visitor


def fields(root: Visitor, pk: int) -> dict[str, Element]:
    return root.open(f"{MESSAGES}{pk}/change/").fields


def test_the_page_shows_everything_about_a_waiting_message(root: Visitor, clock: Clock) -> None:
    sign_in()
    pk = send(
        '{"args": [1, {"deep": "<b>é</b>"}], "kwargs": {}}', channel="acme", headers='{"trace": "abc"}', delay_ms=90_000
    )
    shown = {label: value.text for label, value in fields(root, pk).items()}
    now = clock.at.strftime("%Y-%m-%d %H:%M:%S")
    due = (clock.at + dt.timedelta(seconds=90)).strftime("%Y-%m-%d %H:%M:%S")
    assert shown == {
        "status": "scheduled",
        "task": "send_receipt shop.tasks",
        "queue": "default",
        "channel": "acme",
        "waits because": f"It is scheduled for {due}, in 2 min.",
        "priority": "",
        "dequeue at": "",
        "created at": now,
        "version": "-",
        "attempt": "0 of 5",
        "lock": "-",
        "progress": "-",
        "last error": "-",
        "finished attempts": "none",
        "content": '{ "args": [ 1, { "deep": "<b>é</b>" } ], "kwargs": {} }',
        "headers": '{ "trace": "abc" }',
        "state": "-",
        "unique key": "-",
        "other messages": "none",
    }
    assert root.open(f"{MESSAGES}{pk}/change/").form["dequeue_at"].startswith(due)


def test_the_page_shows_version_and_max_lost_if_they_are_set(root: Visitor, clock: Clock) -> None:
    pk = functions.enqueue(
        connection, functions.NewMessage(content="{}", task="t", max_attempts=2, max_lost=3, version="2024.10.1")
    ).id
    shown = fields(root, pk)
    assert (shown["version"].text, shown["attempt"].text) == ("2024.10.1", "0 of 2, 0 of 3 lost")


def test_the_page_shows_that_a_message_waits_for_a_later_version(root: Visitor, clock: Clock) -> None:
    pk = functions.enqueue(connection, functions.NewMessage(content="{}", task="t", version="2024.10.1")).id
    [held] = claim()
    functions.message_park(connection, [(held, "Version 2 has enqueued it.")], worker=held.worker, unknown=False)
    shown, now = fields(root, pk), clock.at.strftime("%Y-%m-%d %H:%M:%S")
    assert shown["status"].text == "scheduled later version"
    assert shown["waits because"].text.startswith(
        f"It waits since {now} for a worker of its version. Version 2 has enqueued it."
    )


def test_json_is_indented_and_empty_values_stay_on_one_line(root: Visitor, db: None) -> None:
    content = fields(root, send('{"args": [], "kwargs": {"not \\n": "[\\n]"}}'))["content"].one("pre")
    assert content.raw_text == '{\n    "args": [],\n    "kwargs": {\n        "not \\n": "[\\n]"\n    }\n}'


def test_the_page_of_a_running_message_shows_its_worker_and_lock(root: Visitor, clock: Clock) -> None:
    pk = send()
    [held] = claim(lock_ms=60_000)
    functions.message_progress(connection, held, '{"done": 0.5}')
    functions.message_request_cancel(connection, [pk])
    since, until = ((clock.at + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S") for seconds in (0, 60))
    shown = fields(root, pk)
    assert shown["status"].text == "running"
    assert shown["lock"].text == f"held by worker-1 since {since}, until {until}; asked to stop at {since}"
    assert shown["progress"].text == '{ "done": 0.5 }'


def test_a_retried_message_shows_its_attempts_with_links(root: Visitor, clock: Clock) -> None:
    pk = send()
    for error in (ValueError("first"), ValueError("second\nline")):
        retry(claim()[0], error, dequeue_at=0, state='{"page": 2}')
    shown = fields(root, pk)
    assert shown["last error"].one("pre").raw_text == "second\nline"
    assert shown["state"].text == '{ "page": 2 }'
    timeline = shown["finished attempts"].one("ol").all("li")
    assert [item.all("p")[0].text for item in timeline] == [
        f"Attempt {number} retried {clock.at:%Y-%m-%d %H:%M:%S}" for number in (2, 1)
    ]
    assert [item.all("p")[2].text for item in timeline] == ["ValueError: second line", "ValueError: first"]
    assert timeline[0].one("details").one("pre").raw_text == "ValueError: second\nline\n"
    link = timeline[0].one("a").attributes["href"]
    assert root.open(link).fields["message"].text == str(pk)


def test_only_the_last_attempts_of_many_are_shown(root: Visitor, clock: Clock) -> None:
    pk = send(max_attempts=100)
    for _ in range(52):
        retry(claim()[0], dequeue_at=0)
    attempts = fields(root, pk)["finished attempts"]
    assert len(attempts.one("ol").all("li")) == 50
    all_of_them = attempts.all("a")[-1].attributes["href"]
    assert len(root.open(all_of_them, p=2).rows) == 2


def test_very_large_content_is_truncated_with_a_note(root: Visitor, db: None) -> None:
    pk = send('{"text": "' + "x" * 3_000_000 + '"}')
    page = root.open(f"{MESSAGES}{pk}/change/")
    content = page.fields["content"]
    assert content.one("pre").raw_text.count("x") < PRETTY_LENGTH
    assert content.text.endswith("These are the first 100 000 characters.")
    assert len(page.response.content) < 200_000


def test_the_page_of_an_ended_message_redirects_to_its_history(root: Visitor, db: None) -> None:
    pk = send()
    send()
    complete(claim()[0])
    complete(claim()[0])
    page = root.open(f"{MESSAGES}{pk}/change/")
    assert page.response.request["PATH_INFO"] == ATTEMPTS
    assert page.column("message") == [str(pk)]
    assert page.said == [f"Message {pk} is not in the queue (any more). Its attempts in the history:"]


def test_the_redirect_to_the_history_needs_its_permission(visitor: Callable[..., Visitor]) -> None:
    pk = send()
    retry(claim()[0], dequeue_at=0)
    clerk = visitor("view_message")
    assert fields(clerk, pk)["finished attempts"].text == "You have no permission to see the history."
    complete(claim()[0])
    gone = clerk.client.get(f"{MESSAGES}{pk}/change/")
    assert gone.url == "/admin/"  # type: ignore[attr-defined]
