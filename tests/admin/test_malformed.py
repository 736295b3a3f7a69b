"""Rows that somebody wrote by hand: no page breaks, and nothing in them is taken for markup."""

from __future__ import annotations

import re
from functools import partial
from itertools import cycle, product
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.utils import quote

from django_pgqueue import control
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import DjangoAssertNumQueries

    from tests.support.admin_page import Visitor

EVIL = "<script>alert(1)</script>"
QUOTED = "\"'><img src=x onerror=alert(1)>"
CONTENTS = {
    "a number": "1",
    "null": "null",
    "a text": f'"{EVIL}"',
    "an empty list": "[]",
    "a number with too many digits for Python": "[" + "9" * 20_000 + "]",
    "a number too large for a float": "1e100000",
    "a call without arguments": '{"args": 7, "kwargs": []}',
    "markup": '{"args": ["</pre>' + EVIL + '"], "kwargs": {"' + EVIL + '": "&amp;"}}',
    "deep": "[" * 3_000 + "]" * 3_000,
    "all of Unicode": '"\\u2028\\u202e\\ud83d\\ude00"',
}
TIMES = ["0001-01-02 00:00:00+00", "9999-12-30 00:00:00+00"]


def message(**columns: object) -> int:
    given = {"dequeue_at": 0, "content": "{}", **columns}
    [[pk]] = sql(
        f"insert into pgqueue_message ({', '.join(given)}) values ({', '.join(['%s'] * len(given))}) returning id",
        *given.values(),
    )
    return int(pk)


def attempt(**columns: object) -> int:
    given = {
        "message_id": 1,
        "dequeue_at": 0,
        "created_at": "now",
        "finished_at": "now",
        "attempt": 1,
        "priority": 0,
        "final": True,
        "status": "failed",
        "queue": "default",
        **columns,
    }
    [[pk]] = sql(
        f"insert into pgqueue_attempt ({', '.join(given)}) values ({', '.join(['%s'] * len(given))}) returning id",
        *given.values(),
    )
    return int(pk)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_the_pages_show_any_json_content(root: Visitor, content: str) -> None:
    pk = message(content=content, headers=content, state=content, progress=content)
    assert root.open(MESSAGES).ids == [pk]
    shown = root.open(f"{MESSAGES}{pk}/change/").fields
    assert shown["content"].text == shown["state"].text == shown["headers"].text != "-"
    row = attempt(content=content, headers=content, result=content)
    assert root.open(ATTEMPTS).ids == [row]
    assert root.open(f"{ATTEMPTS}{row}/change/").fields["result"].text == shown["content"].text


@pytest.mark.parametrize("text", [EVIL, QUOTED, "", " ", "x" * 255, "a.b." + EVIL, "é\n\t\u202e", "%s {0} {{ x }}"])
def test_the_pages_show_any_text_as_a_name(root: Visitor, text: str) -> None:
    names = {"queue": text or "q", "task": text, "channel": text, "worker": text}
    held = {"unlock_at": 1, "locked_at": "now"}
    pk = message(**names, **held, last_error=text, unique_key=text)
    row = attempt(**names, error_class=text, error_message=text, traceback=text, unique_key=text)
    for url in (
        MESSAGES,
        f"{MESSAGES}{pk}/change/",
        ATTEMPTS,
        f"{ATTEMPTS}{row}/change/",
    ):
        page = root.open(url)
        assert not page.root.all("img", src="x"), url
        assert EVIL not in page.response.content.decode(), url
    question = root.act(MESSAGES, "cancel", [pk])
    assert EVIL not in question.response.content.decode()
    assert root.open(MESSAGES, queue=names["queue"], task=text).response.status_code == 200


@pytest.mark.parametrize("time", TIMES)
def test_the_pages_show_any_time(root: Visitor, time: str) -> None:
    pk = message(created_at=time, locked_at=time, unlock_at=2**62, worker="w", cancel_requested_at=time)
    assert root.open(MESSAGES).ids == [pk]
    assert root.open(MESSAGES, status="running").ids == [pk]
    assert root.open(f"{MESSAGES}{pk}/change/").fields["status"].text == "running"
    row = attempt(created_at=time, started_at=time, finished_at=time, dequeue_at=2**63 - 1)
    assert root.open(ATTEMPTS).ids == [row]
    assert root.open(ATTEMPTS, duration__range__lte="1").ids == [row]
    assert root.open(ATTEMPTS, status__exact="failed").ids == [row]
    assert root.open(f"{ATTEMPTS}{row}/change/").fields["status"].text == "failed"


@pytest.mark.parametrize("number", [2_000_000_000, 0])
def test_the_pages_show_any_number(root: Visitor, number: int) -> None:
    pk = message(attempt=number, max_attempts=number, dequeue_at=-(2**63))
    assert root.open_with_all_columns(MESSAGES).column("attempt") == [f"{number} of {number}"]
    assert root.open(f"{MESSAGES}{pk}/change/").form["dequeue_at"] == str(-(2**63))
    message(id=2**63 - 1, dequeue_at=2**63 - 1)
    assert root.open(MESSAGES, q=str(2**63 - 1)).ids == [2**63 - 1]
    assert root.open(f"{MESSAGES}{2**63 - 1}/change/").fields["status"].text == "scheduled"


NAMED = {
    "queuestate": "insert into pgqueue_queue (name, paused_at) values (%s, now())",
    "schedule": "insert into pgqueue_schedule (name, next_at, task, cron, content) "
    "values (%s, 2 ^ 50, 'shop.tasks.send_receipt', '* * * * *', '{}')",
    "channel": "insert into pgqueue_channel (name, set_at) values (%s, now())",
    "worker": "insert into pgqueue_worker (id, hostname, pid, slots, tasks) values (%s, 'web1', 1, 4, true)",
    "exchange": "insert into pgqueue_exchange (name) values (%s)",
}


@pytest.mark.parametrize("name", ["_0A", "a/b", "..", "é?#%00&x=1", "\"'<>", " ", "change"])
def test_a_row_of_any_name_links_to_its_page(root: Visitor, name: str) -> None:
    for model, statement in NAMED.items():
        sql(statement, name)
        url = f"/admin/django_pgqueue/{model}/"
        [link] = {
            link.attributes["href"]
            for link in root.open(url).root.one(id="result_list").all("a")
            if link.attributes["href"].endswith("/change/")
        }
        assert root.open(link).response.wsgi_request.path.startswith(url + quote(name)), f"{model}, and not the list"
        history = root.open(f"{link.removesuffix('change/')}history/")
        assert history.response.status_code == 200, model
        assert history.root.all("a", href=link), f"the history of the {model} leads back to it"
    assert root.open("/admin/django_pgqueue/overview/").response.status_code == 200


MANY = {model: partial(sql, statement) for model, statement in NAMED.items()} | {
    "message": lambda name: message(queue=name, task=name, channel=name),
    "attempt": lambda name: attempt(queue=name, task=name, channel=name),
}


@pytest.mark.parametrize(("model", "make"), MANY.items(), ids=MANY)
def test_a_list_is_a_few_queries_however_many_rows_there_are(
    root: Visitor, django_assert_max_num_queries: DjangoAssertNumQueries, model: str, make: Callable[[str], object]
) -> None:
    for number in range(50):
        make(f"name {number}")
    with django_assert_max_num_queries(14):
        assert len(root.open(f"/admin/django_pgqueue/{model}/").rows) == 50


@pytest.mark.parametrize("key", ["_0A", "_00", "%00", "%FF", "%ED%A0%80", "9" * 400, "-1", "_5B_5D", "x" * 3_000])
def test_a_key_that_no_row_has_is_not_found(root: Visitor, key: str) -> None:
    led_to = set()
    for model, page in product(
        (*NAMED, "message", "attempt", "binding", "reporthour"), ("change", "history", "delete")
    ):
        answer = root.client.get(f"/admin/django_pgqueue/{model}/{key}/{page}/")
        assert answer.status_code in {302, 403, 404}, (model, page)
        if answer.status_code == 302:
            led_to.add(answer["Location"])
    assert {root.open(url).response.status_code for url in led_to} <= {200}


PARAMETERS = [
    "worker=%00", "worker__icontains=%25", "dequeue_at__gte=soon", "dequeue_at__range=1", "created_at__gte=soon",
    "dequeue_at__gte=99999999999999999999999999", "priority=1.5", "no_such_field=1", "queue__no_such_lookup=1",
    "unlock_at__isnull=maybe", "status=ready&status=running", "status=", "p=0", "p=-1", "p=x", "all=",
    "o=99.-99.x", "_facets=True", "_popup=1", "e=1", "dequeue_at__range__gte_0=%00",
    "channel__range", "channel__range=1", "priority__range", "priority__range=1,2", f"paused_at__year={2**63 - 1}",
    f"message_id={2**63}", f"id={2**63}", f"pk={'9' * 400}", f"message_id={2**63 - 1}", "id=%00", "pk=%FF%FE",
    f"q={2**63}", f"q={'9' * 19}", "q=%00", "q=%FF%FE", "queue=%FF%FE", "channel=%00", "task=%ED%A0%80",
    "exchange=%00", "status__exact=%00", "final__exact=%00", "final__exact=2", "status__isnull=x", "declared=%00",
    "paused=%00",
    "p=9223372036854775808", f"p={'9' * 5_000}", f"o={'9' * 5_000}", "o=%00", "_to_field=%00", "database=%00",
    "created_at__range__gte_0=0000-00-00", "created_at__range__gte_0=9999-12-31&created_at__range__gte_1=23:59:60",
    "dequeue_at__range__lte_0=10000-01-01", "finished_at__range__gte_0=%FF", "hour__range__gte_0=2026-02-30",
    "finished_at__range__gte_0=0001-01-01", "duration__range__gte=1e999", "duration__range__gte=NaN",
    "wait__range__lte=-1", "wait__range__gte=%00", "hour__range__gte_0=0001-01-01&hour__range__lte_0=9999-12-31",
]  # fmt: skip
OTHER_LISTS = (*NAMED, "binding", "reporthour", "overview")
THEIR_OWN = {"declared": "schedule", "exchange": "binding", "hour": "reporthour", "paused": "queuestate"}


def lists() -> Iterator[tuple[str, str]]:
    """Yields each parameter with a list beside those of the messages and of the attempts: its own, or one in turn."""
    for query, other in zip(PARAMETERS, cycle(OTHER_LISTS), strict=False):
        yield query, THEIR_OWN.get(re.split("_|=", query)[0], other)


@pytest.mark.parametrize(("query", "other"), list(lists()))
def test_no_parameter_breaks_a_list(root: Visitor, query: str, other: str) -> None:
    message()
    for model in ("message", "attempt", other):
        answer = root.client.get(f"/admin/django_pgqueue/{model}/?{query}")
        assert answer.status_code in {200, 302, 400}, model
        if answer.status_code == 302:
            assert root.open(answer["Location"]).response.status_code == 200


TURNED = "mail\N{RIGHT-TO-LEFT OVERRIDE}"


def test_no_name_turns_the_words_beside_it(root: Visitor) -> None:
    pk = message(queue=TURNED, worker=TURNED, unlock_at=2**62, locked_at="now", last_error=TURNED)
    sql("insert into pgqueue_queue (name, paused_at, paused_by) values (%s, now(), %s)", TURNED, TURNED)
    overview = "/admin/django_pgqueue/overview/"
    for url in (overview, MESSAGES, f"{MESSAGES}{pk}/change/", "/admin/django_pgqueue/queuestate/"):
        page = root.open(url)
        assert TURNED[:-1] in page.root.one(id="content").text, url
        assert TURNED not in page.root.text, url
    for url in (f"{overview}live/", f"{MESSAGES}?live={pk}", f"{MESSAGES}{pk}/change/?live=page"):
        assert f">{TURNED}" not in str(root.client.get(url).json()), url
    said = Page(root.client.post(f"{overview}act/", {"queue": TURNED, "action": "resume"}, follow=True)).said
    assert said == ["Resumed: mail\N{REPLACEMENT CHARACTER}."], "the form has the name as it is"


def test_the_pages_of_edits_show_any_json(root: Visitor) -> None:
    edit = control.edit("cancel", control.Filter(queue="mail"))
    for column, value in product(("filter", "parameters"), ("[1]", "7", '"x"', "null")):
        sql("update pgqueue_edit set filter = '{}', parameters = '{}'")
        sql(f"update pgqueue_edit set {column} = %s", value)
        assert root.open("/admin/django_pgqueue/edit/").ids == [edit]
        assert root.open(f"/admin/django_pgqueue/edit/{edit}/change/").fields["action"].text.startswith("Cancel")


def test_the_form_of_a_schedule_takes_any_interval(root: Visitor) -> None:
    sql(NAMED["schedule"], "daily")
    sql("update pgqueue_schedule set cron = null, interval_ms = %s", 2**63 - 1)
    assert root.open("/admin/django_pgqueue/schedule/daily/change/").form["interval"] == ""
