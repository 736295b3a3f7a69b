"""Channels: of tasks and of raw messages, and their limits in workers."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_pgqueue.backend import Call, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.control import release_channel, repair_channels, set_channel
from django_pgqueue.exceptions import ChannelFull, ChannelReleased, InvalidMessage
from django_pgqueue.models import Arrival, Channel, Lane, Message
from django_pgqueue.queue import Queue
from django_pgqueue.tasks import task
from django_pgqueue.testing import drain
from tests.support.fixtures.backend import no_queries
from tests.support.site.tasks import nothing

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db


@task(channel=lambda tenant, **_: None if tenant is None else f"tenant-{tenant}")
def of_tenant(tenant: Any, **_: Any) -> None: ...


@task(channel="api")
def of_api(n: int = 0) -> int:
    return n


def channels() -> list[str | None]:
    return list(Message.objects.order_by("id").values_list("channel", flat=True))


class TestTasks:
    def test_a_channel_is_a_name_or_a_callable_of_the_arguments(self) -> None:
        of_api.enqueue()
        of_tenant.enqueue("acme")
        of_tenant.enqueue(tenant="zoo", more=1)
        of_tenant.enqueue(None)
        nothing.enqueue()
        assert channels() == ["api", "tenant-acme", "tenant-zoo", None, None]

    def test_using_sets_another_channel(self) -> None:
        of_api.using(channel="other").enqueue()
        of_tenant.using(channel="fixed").enqueue("acme")
        nothing.using(channel=lambda: "made").enqueue()
        assert channels() == ["other", "fixed", "made"]

    def test_unique_and_waiting_messages_have_a_channel_too(self) -> None:
        first = of_api.using(unique_key="k").enqueue()
        of_api.using(after=[first]).enqueue()
        assert channels() == ["api", "api"]

    def test_a_bulk_sets_a_channel_per_call(self) -> None:
        enqueue_many(of_api, [1, 2])
        enqueue_many(of_tenant, [("a",), (None,), Call(("b",)), Call(("c",), channel="own")])
        assert channels() == ["api", "api", "tenant-a", None, "tenant-b", "own"]

    @pytest.mark.parametrize("channel", ["", "x" * 5000, "nul\x00", 7, ["a"]])
    def test_an_invalid_channel_is_refused_at_its_declaration(self, channel: Any) -> None:
        with pytest.raises(InvalidTask, match="channel"):
            nothing.using(channel=channel)

    @pytest.mark.parametrize("answer", ["", 7, "nul\x00"])
    def test_a_callable_must_return_a_name(self, answer: Any) -> None:
        with no_queries(), pytest.raises(InvalidTask, match=r"tests.support.site.tasks.nothing is .* for this call"):
            nothing.using(channel=lambda: answer).enqueue()


class TestControl:
    def test_limits_are_set_and_removed(self) -> None:
        set_channel("acme", max_concurrency=3, max_size=4, release_interval=dt.timedelta(seconds=1.5))
        row = Channel.objects.get()
        assert (row.max_concurrency, row.max_size, row.release_interval_ms) == (3, 4, 1500)
        set_channel("acme", release_interval=0.25)
        row.refresh_from_db()
        assert (row.max_concurrency, row.max_size, row.release_interval_ms) == (None, None, 250)

    @pytest.mark.parametrize(
        ("limits", "words"),
        [
            ({"max_concurrency": -1}, "max_concurrency must be a whole number from 0"),
            ({"max_concurrency": True}, "not True"),
            ({"max_size": 1.5}, "not 1.5"),
            ({"max_size": 2**31}, "max_size must be"),
            ({"release_interval": -1}, "release_interval must be"),
            ({"release_interval": float("nan")}, "not nan"),
            ({"release_interval": "1s"}, "not '1s'"),
        ],
    )
    def test_wrong_limits_are_refused_before_any_sql(self, limits: dict[str, Any], words: str) -> None:
        with no_queries(), pytest.raises(InvalidMessage, match=words):
            set_channel("acme", **limits)

    @pytest.mark.parametrize("call", [set_channel, release_channel, repair_channels])
    def test_wrong_names_are_refused_before_any_sql(self, call: Callable[[str], Any]) -> None:
        with no_queries(), pytest.raises(InvalidMessage, match="cannot be the name of a channel"):
            call("")

    def test_an_unknown_channel_cannot_be_released(self) -> None:
        with pytest.raises(InvalidMessage, match="There is no channel 'acme'"):
            release_channel("acme")

    def test_a_released_channel_refuses_messages_and_is_deleted(self) -> None:
        of_api.enqueue()
        assert release_channel("api") is False
        with pytest.raises(ChannelReleased, match="channel 'api' was released"):
            of_api.enqueue()
        assert len(drain()) == 1
        drain()
        assert not Channel.objects.filter(name="api").exists()
        assert not Lane.objects.filter(channel="api").exists()

    def test_a_wrong_count_is_repaired(self) -> None:
        set_channel("acme")
        Channel.objects.update(running=4)
        assert [tuple(found) for found in repair_channels()] == [("acme", 4, 0)]
        assert repair_channels("acme") == []

    def test_changes_of_channels_are_part_of_the_transaction(self) -> None:
        with transaction.atomic():
            set_channel("acme", max_size=0)
            transaction.set_rollback(True)
        of_api.using(channel="acme").enqueue()


class TestFull:
    @pytest.fixture(autouse=True)
    def limit(self) -> None:
        set_channel("api", max_size=2)
        of_api.enqueue()

    @pytest.mark.parametrize(
        "enqueue",
        [
            of_api.enqueue,
            of_api.using(unique_key="another").enqueue,
            lambda: Queue("mail").send(2, channel="api"),
        ],
        ids=["task", "with a key", "raw"],
    )
    def test_a_full_channel_refuses_and_the_transaction_goes_on(self, enqueue: Callable[[], Any]) -> None:
        held = of_api.using(unique_key="held").enqueue()
        with pytest.raises(ChannelFull, match="channel 'api' is full: its max_size is 2") as caught:
            enqueue()
        assert caught.value.channel == "api"
        assert of_api.using(unique_key="held").enqueue().id == held.id
        nothing.enqueue()
        assert channels() == ["api", "api", None]

    def test_a_bulk_is_enqueued_whole_or_not_at_all(self) -> None:
        with pytest.raises(ChannelFull, match=r"calls\[1\] was not enqueued"):
            enqueue_many(of_api, range(5))
        with pytest.raises(ChannelFull, match=r"calls\[2\] was not enqueued"):
            enqueue_many(nothing, [Call(channel=name) for name in ("a", "api", "api", "b")])
        with pytest.raises(ChannelFull, match=r"contents\[1\] was not enqueued"):
            Queue("mail").send_many([1, 2], channel="api")
        assert channels() == ["api"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_test", ["first", "second"])
def test_the_tables_of_a_test_are_emptied_with_the_others(_test: str) -> None:
    """Rows left behind would count against the next test's limits."""
    assert not Arrival.objects.exists()
    Queue("mail").send(1, channel="acme")
    message = Queue("mail").receive()
    assert message is not None
    message.complete()
    assert Arrival.objects.exists()
