"""Rules and their slots: what is due when, also on the days on which clocks change."""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidContent, InvalidSchedule
from django_pgqueue.tasks import cron, every, task
from django_pgqueue.tasks.schedule import CATCH_UP, MAX_SLOTS, ON_TIME, Rule, due
from django_pgqueue.values.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)
MINUTELY = Rule(cron="* * * * *")


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def slots(rule: Rule, after: str, number: int = 4) -> list[str]:
    """The next slots, in the rule's own time zone."""
    found = islice(rule.after(at(after)), number)
    return [slot.astimezone(ZoneInfo(rule.timezone)).strftime("%m-%d %H:%M%z") for slot in found]


# Rules


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 * * * *", ["01-01 00:15", "01-01 00:30", "01-01 00:45", "01-01 01:00"]),
        ("30 2 * * *", ["01-01 02:30", "01-02 02:30", "01-03 02:30", "01-04 02:30"]),
        ("0 9 * * mon-fri", ["01-01 09:00", "01-02 09:00", "01-05 09:00", "01-06 09:00"]),
        ("0 0 1,15 * *", ["01-15 00:00", "02-01 00:00", "02-15 00:00", "03-01 00:00"]),
        ("0 0 L * *", ["01-31 00:00", "02-28 00:00", "03-31 00:00", "04-30 00:00"]),
        ("0 12 13 * fri", ["01-02 12:00", "01-09 12:00", "01-13 12:00", "01-16 12:00"]),
    ],
)
def test_a_cron_expression_means_what_it_means_to_cron(expression: str, expected: list[str]) -> None:
    rule = Rule(cron=expression)
    assert slots(rule, "2026-01-01") == [f"{slot}+0000" for slot in expected]


def test_a_leap_day_comes_every_four_years_but_not_in_2100() -> None:
    found = Rule(cron="0 0 29 2 *", timezone=NEW_YORK).after(at("2090-01-01"))
    assert [slot.year for slot in islice(found, 4)] == [2092, 2096, 2104, 2108]


def test_an_interval_is_counted_from_1970_so_that_all_workers_agree() -> None:
    rule = every(7 * MINUTE).rule
    found = list(islice(rule.after(at("2026-01-01 00:00:01")), 3))
    assert [(slot - EPOCH) % (7 * MINUTE) for slot in found] == [dt.timedelta()] * 3
    assert list(islice(rule.after(at("2026-01-01 00:01")), 3)) == found
    assert next(rule.after(found[0])) == found[1], "after means after"


def test_an_interval_before_1970_is_no_special_case() -> None:
    assert next(every(HOUR).rule.after(at("1969-12-31 22:30"))) == at("1969-12-31 23:00")


# The days on which clocks change


@pytest.mark.parametrize(
    ("zone", "expression", "after", "expected"),
    [
        # There is no such time: the job runs when the clocks have been put forward, and once.
        (BERLIN, "30 2 * * *", "2026-03-27 12:00", "03-28 02:30+0100, 03-29 03:00+0200, 03-30 02:30+0200"),
        (NEW_YORK, "15 2 * * *", "2026-03-07 12:00", "03-08 03:00-0400, 03-09 02:15-0400, 03-10 02:15-0400"),
        # There are two such times: the job runs at the first.
        (BERLIN, "30 2 * * *", "2026-10-23 12:00", "10-24 02:30+0200, 10-25 02:30+0200, 10-26 02:30+0100"),
        (NEW_YORK, "15 1 * * *", "2026-10-31 12:00", "11-01 01:15-0400, 11-02 01:15-0500, 11-03 01:15-0500"),
    ],
)
def test_on_the_day_on_which_clocks_change_a_job_runs_once(
    zone: str, expression: str, after: str, expected: str
) -> None:
    assert slots(Rule(cron=expression, timezone=zone), after, 3) == expected.split(", ")


@pytest.mark.parametrize(
    ("zone", "before"), [(BERLIN, "2026-03-29 00:10"), (NEW_YORK, "2026-03-08 06:10"), (BERLIN, "2026-10-25 00:10")]
)
def test_a_schedule_of_every_few_minutes_continues_over_a_clock_change(zone: str, before: str) -> None:
    found = list(islice(Rule(cron="*/20 * * * *", timezone=zone).after(at(before)), 9))
    assert {later - earlier for earlier, later in pairwise(found)} == {20 * MINUTE}


def test_intervals_ignore_clock_changes() -> None:
    found = list(islice(every(HOUR).rule.after(at("2026-03-29 00:10")), 6))
    assert {later - earlier for earlier, later in pairwise(found)} == {HOUR}


def test_in_a_repeated_hour_the_next_slot_is_after_the_current_time() -> None:
    rule = Rule(cron="45 2 * * *", timezone=BERLIN)
    second_time_two = at("2026-10-25 01:10")  # 02:10 for the second time
    assert slots(rule, "2026-10-25 01:10", 1) == ["10-26 02:45+0100"]
    assert next(rule.after(second_time_two)) > second_time_two


# What has been missed


@pytest.mark.parametrize(
    ("catch_up", "now", "due_hours", "next_hour"),
    [
        *((catch_up, "2025-12-31 23:59:59.999", [], 0) for catch_up in CATCH_UP),
        *((catch_up, "2026-01-01 00:00", [0], 1) for catch_up in CATCH_UP),
        *((catch_up, "2026-01-01 00:00:59", [0], 1) for catch_up in CATCH_UP),
        ("skip", "2026-01-01 09:01", [9], 10),
        ("skip", "2026-01-01 09:01:00.001", [], 10),
        ("one", "2026-01-01 09:30", [9], 10),
        ("all", "2026-01-01 09:30", range(10), 10),
    ],
)
def test_missed_slots_are_left_out_run_once_or_all_run(
    catch_up: str, now: str, due_hours: Iterable[int], next_hour: int
) -> None:
    first = at("2026-01-01")
    found = due(Rule(cron="0 * * * *"), catch_up, first=first, now=at(now))
    assert found == ([first + hour * HOUR for hour in due_hours], first + next_hour * HOUR)


@pytest.mark.parametrize(
    "rule", [MINUTELY, every(MINUTE).rule, every(dt.timedelta(milliseconds=1)).rule], ids=["cron", "minute", "ms"]
)
@pytest.mark.parametrize("away", [MAX_SLOTS * MINUTE, 3 * MAX_SLOTS * MINUTE, 400 * DAY])
def test_catch_up_one_runs_once_after_any_outage(rule: Rule, away: dt.timedelta) -> None:
    first = at("2026-01-01 12:00")
    now = first + away
    assert due(rule, "one", first=first, now=now) == ([now], rule.first_after(now))
    rare = Rule(cron="0 0 29 2 *")
    assert due(rare, "one", first=at("2024-02-29"), now=at("2031-05-05")) == ([at("2028-02-29")], at("2032-02-29"))


def test_very_many_missed_slots_are_enqueued_in_parts() -> None:
    first = at("2026-01-01 12:00")
    now = first + (2 * MAX_SLOTS + 500) * MINUTE
    found: list[dt.datetime] = []
    looks = 0
    while first <= now:
        some, first = due(MINUTELY, "all", first=first, now=now)
        assert len(some) <= MAX_SLOTS
        found += some
        looks += 1
    assert looks == 3
    assert found == [at("2026-01-01 12:00") + n * MINUTE for n in range(2 * MAX_SLOTS + 501)]


# Over any sequence of looks

MINUTES = st.sampled_from(["*", "*/7", "0", "30", "15,45", "59"])
HOURS = st.sampled_from(["*", "*/6", "0", "1", "2", "2,3", "1-3", "12"])
DAYS = st.sampled_from(["*", "*/10", "1", "8", "25", "29", "L"])
MONTHS = st.sampled_from(["*", "2", "3", "10,11", "*/5"])
WEEKDAYS = st.sampled_from(["*", "sun", "mon-fri", "1#2"])
ZONES = st.sampled_from([BERLIN, NEW_YORK, "UTC", "Asia/Kolkata"])
CRON_RULES = st.builds(lambda zone, *fields: (" ".join(fields), zone), ZONES, MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS)
AROUND_CHANGES = st.sampled_from(
    [at("2026-03-29 01:00"), at("2026-10-25 01:00"), at("2026-03-08 07:00"), at("2026-11-01 06:00"), at("2028-02-29")]
)
NEAR = st.integers(-4 * 86_400_000, 4 * 86_400_000).map(lambda ms: dt.timedelta(milliseconds=ms))
MOMENTS = st.builds(lambda change, distance: change + distance, AROUND_CHANGES, NEAR)


def rule_of(expression: str, zone: str) -> Rule:
    try:
        return Rule(cron=expression, timezone=zone)
    except InvalidSchedule as error:
        assume("is never due" not in str(error))
        raise


@given(CRON_RULES, MOMENTS)
@example(("45 2 * * *", BERLIN), at("2026-10-25 01:10"))
@settings(max_examples=150, deadline=None)
def test_slots_are_strictly_increasing_and_after_the_moment(words: tuple[str, str], moment: dt.datetime) -> None:
    found = [moment, *islice(rule_of(*words).after(moment), 40)]
    assert all(earlier < later for earlier, later in pairwise(found))


@given(CRON_RULES, MOMENTS, st.integers(0, 6 * 3_600_000))
@settings(max_examples=150, deadline=None)
def test_the_next_slot_does_not_depend_on_the_start_of_the_search(
    words: tuple[str, str], moment: dt.datetime, later_ms: int
) -> None:
    rule, later = rule_of(*words), moment + dt.timedelta(milliseconds=later_ms)
    from_before = next(slot for slot in rule.after(moment) if slot > later)
    assert next(rule.after(later)) == from_before


GAPS = st.lists(st.integers(1, 5 * 86_400_000).map(lambda ms: dt.timedelta(milliseconds=ms)), min_size=1, max_size=8)
RULES = st.one_of(
    CRON_RULES.map(lambda words: ("cron", words)),
    st.integers(60_000, 90_000_000).map(lambda ms: ("interval", ms)),
)


@given(RULES, MOMENTS, GAPS)
@settings(max_examples=150, deadline=None)
def test_over_any_sequence_of_checks_each_slot_is_fired_once(
    kind: tuple[str, tuple[str, str] | int], moment: dt.datetime, gaps: list[dt.timedelta]
) -> None:
    words = kind[1]
    rule = Rule(interval_ms=words) if isinstance(words, int) else rule_of(*words)
    start = rule.first_after(moment)
    looks = [moment]
    for gap in gaps:
        looks.append(looks[-1] + gap)
    every_slot = []
    for slot in rule.after(moment):
        if slot > looks[-1]:
            break
        every_slot.append(slot)

    found: dict[str, list[dt.datetime]] = {}
    for catch_up in ("all", "one", "skip"):
        found[catch_up], first = [], start
        for now in looks:
            while True:
                some, first = due(rule, catch_up, first=first, now=now)
                found[catch_up] += some
                if first > now:
                    break
        assert first == rule.first_after(looks[-1])

    assert found["all"] == every_slot
    newest = {max((s for s in every_slot if earlier < s <= now), default=None) for earlier, now in pairwise(looks)}
    assert found["one"] == sorted(slot for slot in newest if slot is not None)
    fresh = {s for s in every_slot for earlier, now in pairwise(looks) if earlier < s <= now and now - s <= ON_TIME}
    assert found["skip"] == sorted(fresh)


# Words and errors


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(cron="30 2 * * mon-fri", timezone=BERLIN), "At 02:30 on Monday through Friday (Europe/Berlin)"),
        (Rule(interval_ms=60_000), "every minute"),
        (Rule(interval_ms=300_000), "every 5 minutes"),
        (Rule(interval_ms=129_600_000), "every 36 hours"),
        (Rule(interval_ms=1_500), "every 1,500 milliseconds"),
    ],
)
def test_a_rule_has_a_description(rule: Rule, words: str) -> None:
    assert rule.words == words


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        *(
            (partial(cron, wrong), repr(wrong))
            for wrong in (
                "",
                "daily",
                "60 * * * *",
                "* * * *",
                "* * * * * * *",
                "0 0 31 2 *",
                "0 0 */30 * 2#3",
                "5/0 * * * *",
            )
        ),
        *(
            (partial(cron, "0 0 * * *", timezone=wrong), repr(wrong))
            for wrong in ("Mars/Olympus", "Europe", "/etc/localtime", "../UTC", "a\0b")
        ),
        (partial(every, dt.timedelta()), "at least a millisecond, not 0 ms"),
        (partial(every, -HOUR), "not -3600000 ms"),
        *(
            (partial(every, wrong), repr(wrong))  # type: ignore[arg-type]
            for wrong in (dt.timedelta(microseconds=1500), 60, "1 hour", None)
        ),
        (partial(Rule, interval_ms=86_400_000 * 10**9), "86400000000000000 ms' is never due"),
        (partial(Rule, cron="whenever"), "From cronsim 2.7 on, the second may stand before"),
        (partial(Rule, cron="* * * * *", interval_ms=1000), "either a cron expression or an interval"),
        (Rule, "either a cron expression or an interval"),
        (partial(cron, "0 0 * * *", catch_up="never"), "skip, one, all, not 'never'"),
        (partial(every, HOUR, name=""), "'' cannot be the name of a schedule"),
    ],
    ids=lambda value: ascii(value)[:60] if isinstance(value, str) else None,
)
def test_an_impossible_schedule_is_an_error_that_names_it(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidSchedule, match=re.escape(words)):
        declare()


def test_arguments_that_are_not_json_are_named() -> None:
    with pytest.raises(InvalidContent, match=r"the call of a schedule\['kwargs'\]\['at'\]"):
        every(HOUR, kwargs={"at": EPOCH})


def test_the_default_time_zone_is_that_of_the_project(settings: object) -> None:
    settings.TIME_ZONE = NEW_YORK  # type: ignore[attr-defined]
    assert cron("0 0 * * *").rule.timezone == NEW_YORK


def report(day: str, *, copies: int = 1) -> None: ...


def greet(context: object, name: str) -> None: ...


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("0 0 * * *", "schedule must be cron"),
        ([every(HOUR, args=["mon"])], "schedule must be cron"),
        (every(HOUR), "report cannot be called with args=\\[\\] .*missing a required argument: 'day'"),
        (every(HOUR, args=["mon"], kwargs={"colour": 1}), "colour"),
        ((every(HOUR, args=["mon"], name="a"), every(DAY, args=["tue"], name="a")), "two schedules of the same name"),
    ],
)
def test_a_schedule_that_does_not_fit_its_task_is_an_error_at_its_declaration(schedule: object, words: str) -> None:
    with pytest.raises((InvalidTask, InvalidSchedule), match=words):
        task(report, schedule=schedule)


def test_the_context_is_not_among_the_arguments_of_a_schedule() -> None:
    task(greet, takes_context=True, schedule=every(HOUR, args=["Ada"]))
    with pytest.raises(InvalidSchedule, match="greet cannot be called"):
        task(greet, takes_context=True, schedule=every(HOUR, args=["Ada", "Grace"]))
