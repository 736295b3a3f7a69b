"""Channels are listed with what runs and waits in them, and their limits are edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue.control import release_channel, set_channel
from django_pgqueue.models import Channel
from tests.support.fixtures.admin import claim, complete, send, sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.admin_page import Visitor

pytestmark = pytest.mark.django_db
CHANNELS = "/admin/django_pgqueue/channel/"
LIMITS = {"max_concurrency": "", "max_size": "", "release_interval_ms": ""}


def save(visitor: Visitor, url: str, **changes: Any) -> Any:
    return visitor.client.post(url, LIMITS | changes)


def limits(name: str = "acme") -> tuple[int | None, int | None, int | None]:
    row = Channel.objects.get(pk=name)
    return row.max_concurrency, row.max_size, row.release_interval_ms


class TestList:
    def test_each_channel_is_listed_with_its_message_counts(self, root: Visitor) -> None:
        set_channel("acme", max_concurrency=2, max_size=10)
        for _ in range(5):
            send(channel="acme")
        send(channel="zoo")
        assert len(claim(limit=10)) == 3
        send(channel="zoo")
        rows = {row["name"]: row for row in root.open(CHANNELS).rows}
        assert (rows["acme"]["running"], rows["acme"]["waiting"]) == ("2 of 2", "3 of 10")
        assert (rows["zoo"]["running"], rows["zoo"]["waiting"]) == ("1", "1")
        assert rows["zoo"]["state"] == "no limits set"

    def test_an_ended_message_is_not_counted_as_running_before_the_next_dequeue(self, root: Visitor) -> None:
        send(channel="acme")
        [held] = claim()
        complete(held)
        assert Channel.objects.get().running == 1
        assert root.open(CHANNELS).rows[0]["running"] == "0"

    def test_the_next_release_is_shown_while_a_message_waits_for_it(self, root: Visitor) -> None:
        set_channel("acme", release_interval=3600)
        send(channel="acme")
        claim()
        set_channel("zoo")
        set_channel("still", max_concurrency=0)
        set_channel("full", max_concurrency=1)
        send(channel="full")
        claim()
        rows = {row["name"]: row for row in root.open(CHANNELS).rows}
        assert rows["acme"]["next release"].startswith("20")
        assert rows["acme"]["release interval"] == "3\xa0600\xa0000 ms".replace("\xa0", " ")
        assert rows["zoo"]["next release"] == "at once"
        assert rows["full"]["next release"] == "when one has ended"
        assert rows["still"]["next release"] == "not before the limit is raised"

    def test_the_number_that_waits_leads_to_the_messages(self, root: Visitor) -> None:
        send(channel="acme")
        send(channel="other")
        claim()
        send(channel="acme")
        page = root.open(CHANNELS, q="acm")
        [row] = page.cells
        assert len(root.open(row["waiting"].one("a").attributes["href"]).rows) == 2

    def test_waiting_messages_are_counted_up_to_a_limit(self, root: Visitor) -> None:
        set_channel("acme")
        sql("""
            insert into pgqueue_message (dequeue_at, content, channel)
            select n, '1', 'acme' from generate_series(1, 1100) as n
        """)
        assert root.open(CHANNELS).rows[0]["waiting"] == "1 000+"


class TestLimits:
    def test_limits_are_set_for_a_new_channel(self, root: Visitor) -> None:
        answer = save(root, f"{CHANNELS}add/", name="acme", max_concurrency="5", release_interval_ms="200")
        assert answer.status_code == 302
        assert limits() == (5, None, 200)

    def test_limits_are_changed_and_removed(self, root: Visitor) -> None:
        set_channel("acme", max_concurrency=5, max_size=7)
        assert save(root, f"{CHANNELS}acme/change/", max_concurrency="6").status_code == 302
        assert limits() == (6, None, None)
        assert LogEntry.objects.count() == 1

    def test_a_higher_limit_lets_more_in(self, root: Visitor) -> None:
        set_channel("acme", max_concurrency=0)
        send(channel="acme")
        assert claim() == []
        save(root, f"{CHANNELS}acme/change/", max_concurrency="1")
        assert len(claim()) == 1

    @pytest.mark.parametrize(
        "wrong",
        [{"max_concurrency": "-1"}, {"max_size": "x"}, {"release_interval_ms": "3000000000"}, {"name": "x" * 256}],
        ids=str,
    )
    def test_a_wrong_value_is_an_error_of_its_field(self, root: Visitor, wrong: dict[str, str]) -> None:
        set_channel("acme", max_concurrency=5)
        answer = save(root, f"{CHANNELS}{'add' if 'name' in wrong else 'acme/change'}/", **wrong)
        assert answer.status_code == 200
        assert list(answer.context["adminform"].form.errors) == list(wrong)
        assert limits() == (5, None, None)
        assert Channel.objects.count() == 1


class TestRelease:
    def test_released_channels_disappear_when_they_are_drained(self, root: Visitor) -> None:
        set_channel("empty")
        send(channel="busy")
        claim()
        data = {"action": "release", "_selected_action": ["empty", "busy"]}
        text = root.client.post(CHANNELS, data, follow=True).content.decode()
        assert "Released and deleted: empty." in text
        assert "Released: busy. Each channel is deleted when its messages have ended." in text
        assert [row["state"] for row in root.open(CHANNELS).rows] == ["released"]
        assert LogEntry.objects.count() == 2

    def test_the_answer_names_ten_of_many_channels(self, root: Visitor) -> None:
        for number in range(12):
            set_channel(f"tenant-{number:02}")
        said = root.act(CHANNELS, "release", ["tenant-00"], select_across=1).said
        names = ", ".join(f"tenant-{number:02}" for number in range(10))
        assert said == [f"Released and deleted: {names} and 2 more."]

    def test_the_page_of_a_channel_shows_its_release_time(self, root: Visitor) -> None:
        send(channel="busy")
        claim()
        release_channel("busy")
        assert "released at" in root.open(f"{CHANNELS}busy/change/").root.text.lower()


ALREADY = ["There is a channel “acme” already. Its own page has its limits."]


def test_a_channel_that_has_limits_keeps_them_when_one_of_its_name_is_added(root: Visitor) -> None:
    send(channel="acme")
    claim()
    assert save(root, f"{CHANNELS}add/", name="acme", max_size="3").status_code == 302  # its message brought it
    for name in ("acme", " acme "):
        response = save(root, f"{CHANNELS}add/", name=name, max_concurrency="9")
        assert response.context["adminform"].form.errors["name"] == ALREADY
    assert limits() == (None, 3, None)


def test_who_may_only_add_channels_changes_none(visitor: Callable[..., Visitor]) -> None:
    send(channel="acme")
    claim()
    clerk = visitor("add_channel")
    response = save(clerk, f"{CHANNELS}add/", name="acme", max_concurrency="9")
    assert response.context["adminform"].form.errors["name"] == ALREADY
    assert limits() == (None, None, None)
    save(clerk, f"{CHANNELS}add/", name="new", max_concurrency="9")
    assert limits("new") == (9, None, None)
