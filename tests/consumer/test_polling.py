"""Polling: when to look again."""

from __future__ import annotations

import pytest

from django_pgqueue.consumer.polling import (
    AWAKE_SECONDS,
    MAX_LOOK_SECONDS,
    MIN_DUE_SECONDS,
    MIN_LOOK_SECONDS,
    POLL_SECONDS,
    QUIET_AWAKE_SECONDS,
    Polling,
)
from django_pgqueue.functions import Company, Prospect


@pytest.fixture
def idleness() -> Polling:
    return Polling(listen=True)


def prospect(*writing: int, next_at: int | None = None) -> Prospect:
    return Prospect(next_at, 0, frozenset(writing))


def looked_in_vain(idleness: Polling, *times: float) -> None:
    for now in times:
        idleness.looks()
        idleness.looked(found=0, wanted=4, now=now)


def test_a_worker_that_found_all_it_wanted_looks_again_at_once(idleness: Polling) -> None:
    idleness.looked(found=4, wanted=4, now=10.0)
    assert idleness.next_look == 10.0


def test_a_worker_that_found_less_looks_again_soon_and_then_less_often(idleness: Polling) -> None:
    idleness.looked(found=1, wanted=4, now=10.0)
    assert idleness.next_look == 10.0 + MIN_LOOK_SECONDS
    looked_in_vain(idleness, 10.04)
    assert idleness.next_look == pytest.approx(10.045)
    looked_in_vain(idleness, 10.4)
    assert idleness.next_look == pytest.approx(10.4 + MAX_LOOK_SECONDS)


def found_something(idleness: Polling, *, a_second: int) -> float:
    """For five seconds.  Answers when it was for the last time."""
    for number in range(5 * a_second + 1):
        idleness.looked(found=1, wanted=4, now=number / a_second)
    return 5.0


def test_a_worker_with_little_to_do_sleeps_almost_at_once(idleness: Polling) -> None:
    now = found_something(idleness, a_second=20)
    looked_in_vain(idleness, now, now + 0.9 * QUIET_AWAKE_SECONDS)
    assert not idleness.wants_to_sleep
    looked_in_vain(idleness, now + 1.1 * QUIET_AWAKE_SECONDS)
    assert idleness.wants_to_sleep


@pytest.mark.parametrize(("a_second", "workers"), [(300, 1), (20, 32)])
def test_a_worker_stays_awake_while_all_together_have_much_to_do(
    idleness: Polling, a_second: int, workers: int
) -> None:
    """While somebody sleeps each enqueue notifies."""
    idleness.company = Company(workers=workers, with_room=1)
    now = found_something(idleness, a_second=a_second)
    looked_in_vain(idleness, now, now + 0.9 * AWAKE_SECONDS)
    assert not idleness.wants_to_sleep
    looked_in_vain(idleness, now + 1.1 * AWAKE_SECONDS)
    assert idleness.wants_to_sleep


def test_a_woken_worker_with_much_to_do_wakes_up_and_looks_again_soon(idleness: Polling) -> None:
    now = found_something(idleness, a_second=300)
    idleness.fell_asleep()
    looked_in_vain(idleness, now)
    woken(idleness, found=1, now=now)
    assert not idleness.stays_asleep
    assert idleness.next_look == now + MIN_LOOK_SECONDS


def woken(idleness: Polling, *, found: int, now: float) -> None:
    idleness.notified()
    idleness.looks()
    idleness.looked(found=found, wanted=4, now=now)
    if idleness.stays_asleep:
        idleness.slept_on(None, now=now)


def test_a_woken_worker_with_little_to_do_stays_asleep_and_polls_when_it_would_have(idleness: Polling) -> None:
    fell_asleep_beside(idleness)
    polls_at = idleness.next_look
    woken(idleness, found=1, now=11.1)
    stayed, next_look = idleness.stays_asleep, idleness.next_look
    woken(idleness, found=4, now=11.2)
    assert (stayed, next_look) == (True, polls_at)
    assert (idleness.stays_asleep, idleness.next_look) == (False, 11.2), "there may be more"


def test_a_woken_worker_goes_on_asking_for_transactions(idleness: Polling) -> None:
    fell_asleep_beside(idleness, 7)
    woken(idleness, found=1, now=11.001)
    assert idleness.asks_first(11.002)
    assert idleness.is_due(frozenset, now=11.002)


def test_a_worker_that_is_woken_before_its_first_poll_polls_at_once(idleness: Polling) -> None:
    """It has slept before, and knows a time of its next poll from then."""
    fell_asleep_beside(idleness)
    idleness.woke_up()
    idleness.fell_asleep()
    woken(idleness, found=0, now=11.1)
    assert idleness.is_poll
    assert idleness.next_look <= 11.0


def test_who_wakes_up_after_all_looks_at_once(idleness: Polling) -> None:
    fell_asleep_beside(idleness)
    woken(idleness, found=1, now=11.1)
    idleness.woke_up()
    assert idleness.next_look <= 11.1


def test_what_a_sleeper_has_put_back_makes_it_poll(idleness: Polling) -> None:
    fell_asleep_beside(idleness)
    idleness.looks_soon()
    assert idleness.is_poll
    assert idleness.next_look <= 11.0


def test_a_worker_woken_during_a_look_looks_again_at_once(idleness: Polling) -> None:
    """The notification comes with the answer to a look that did not see the message yet."""
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.fell_asleep()
    idleness.looks()
    idleness.notified()
    idleness.looked(found=0, wanted=4, now=11.0)
    assert idleness.next_look <= 11.0


def test_a_worker_that_finds_nothing_for_a_while_looks_once_more_and_sleeps(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 10.1 + AWAKE_SECONDS)
    wanted_to_sleep = idleness.wants_to_sleep
    idleness.fell_asleep()
    assert wanted_to_sleep
    assert idleness.asleep
    assert not idleness.wants_to_sleep
    assert idleness.next_look <= 10.1 + AWAKE_SECONDS


def test_a_sleeper_that_finds_nothing_polls_later(idleness: Polling) -> None:
    idleness.fell_asleep()
    looked_in_vain(idleness, 11.0)
    assert idleness.polled
    idleness.sleeps_on(now=20.0)
    assert 20.0 + 0.8 * POLL_SECONDS <= idleness.next_look <= 20.0 + 1.2 * POLL_SECONDS


@pytest.mark.parametrize(("with_room", "times"), [(0, 1), (1, 1), (3, 3)])
def test_workers_with_room_share_the_polling(idleness: Polling, with_room: int, times: int) -> None:
    idleness.company = Company(workers=8, with_room=with_room)
    looked_in_vain(idleness, 10.0)
    assert idleness.next_look == pytest.approx(10.0 + times * MIN_LOOK_SECONDS)


def test_a_sleeper_polls(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.fell_asleep()
    looked_in_vain(idleness, 11.0)
    assert 11.0 + 0.8 * POLL_SECONDS <= idleness.next_look <= 11.0 + 1.2 * POLL_SECONDS
    assert not idleness.wants_to_sleep


def test_sleepers_do_not_all_poll_at_the_same_time(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 11.0)
    polls = set()
    for _ in range(10):
        looked_in_vain(idleness, 11.0)
        polls.add(idleness.next_look)
    assert len(polls) > 5


def test_a_notification_makes_a_worker_look_at_once(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.notified()
    assert idleness.next_look <= 11.0


def test_a_scheduled_message_shortens_the_sleep_and_a_later_one_does_not_lengthen_it(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.slept_on(prospect(next_at=300), now=11.0)
    assert idleness.next_look == 11.3
    idleness.slept_on(prospect(next_at=30_000), now=11.0)
    assert idleness.next_look == 11.3
    idleness.slept_on(prospect(next_at=0), now=11.0)
    assert idleness.next_look == 11.0 + MIN_DUE_SECONDS, "what is due and not to be had is no reason to hurry"


def fell_asleep_beside(idleness: Polling, *writing: int) -> None:
    """At 11.0, and it has looked."""
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.fell_asleep()
    looked_in_vain(idleness, 11.0)
    idleness.slept_on(prospect(*writing), now=11.0)


def test_a_sleeper_asks_for_the_end_of_transactions_less_and_less_often(idleness: Polling) -> None:
    fell_asleep_beside(idleness, 7, 8)
    now, asked_at = 11.0, []
    while idleness.next_look < 11.5:
        now = idleness.next_look
        assert idleness.asks_first(now)
        assert not idleness.is_due(lambda: frozenset({7, 8, 9}), now=now)
        asked_at.append(round(now - 11.0, 4))
    assert asked_at == [0.002, 0.006, 0.014, 0.03, 0.062, 0.126, 0.254]


def test_a_sleeper_polls_when_one_of_the_transactions_has_ended(idleness: Polling) -> None:
    fell_asleep_beside(idleness, 7, 8)
    assert idleness.is_due(lambda: frozenset({8, 9}), now=11.002)
    looked_in_vain(idleness, 11.002)
    idleness.slept_on(prospect(8, 9, 10), now=11.002)
    assert not idleness.is_due(lambda: frozenset({8, 10}), now=11.006), "9 has begun since, and notifies the sleeper"
    assert idleness.is_due(lambda: frozenset({10}), now=11.014)
    looked_in_vain(idleness, 11.014)
    idleness.slept_on(prospect(10), now=11.014)
    assert not idleness.asks_first(11.014)
    assert idleness.next_look >= 11.014 + 0.8 * POLL_SECONDS


def test_a_notification_that_comes_with_the_answer_is_not_forgotten(idleness: Polling) -> None:
    fell_asleep_beside(idleness, 7)

    def ask() -> frozenset[int]:
        idleness.notified()
        return frozenset({7})

    assert idleness.is_due(ask, now=11.002)
    assert idleness.next_look <= 11.002
    idleness.sleeps_on(now=11.002)
    assert idleness.next_look <= 11.002, "nor does it sleep on, because others have room"


def test_a_look_that_others_have_ordered_does_not_wait_for_transactions(idleness: Polling) -> None:
    fell_asleep_beside(idleness, 7)
    idleness.next_look = 11.001  # as Rest does when it knows that something is due
    assert idleness.is_due(lambda: frozenset({7}), now=11.001)


def test_a_sleeper_that_another_has_woken_in_vain_polls_at_once(idleness: Polling) -> None:
    fell_asleep_beside(idleness)
    idleness.notified(True)
    looked_in_vain(idleness, 20.0)
    idleness.slept_on(None, now=20.0)
    assert idleness.next_look <= 20.0
    looked_in_vain(idleness, 20.0)
    idleness.slept_on(prospect(30), now=20.0)
    assert idleness.asks_first(20.002), "the message for which it was woken may be committed later"


def test_after_an_error_a_worker_waits(idleness: Polling) -> None:
    idleness.looked(found=4, wanted=4, now=10.0)
    idleness.pause(2.0, now=10.0)
    assert idleness.next_look == 12.0


def test_a_worker_without_listen_polls_as_rarely_as_a_sleeper(idleness: Polling) -> None:
    deaf = Polling(listen=False)
    looked_in_vain(deaf, 10.0, 11.0)
    assert not deaf.wants_to_sleep
    assert deaf.next_look >= 11.0 + 0.8 * POLL_SECONDS


def test_a_worker_that_found_a_message_stays_awake(idleness: Polling) -> None:
    looked_in_vain(idleness, 10.0, 11.0)
    idleness.looked(found=4, wanted=4, now=11.1)
    assert not idleness.wants_to_sleep
    looked_in_vain(idleness, 11.2)
    assert idleness.next_look == 11.2 + MIN_LOOK_SECONDS
