"""The report of a storm in docs/pages/about/storm.md, between its two marks: only what was measured."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BEGIN, END = "<!-- storm -->\n", "<!-- end storm -->\n"


def put(page: Path, whole: dict[str, Any]) -> None:
    before, found, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (found and end):
        message = f"{page} has no {BEGIN.strip()} with its {END.strip()}."
        raise ValueError(message)
    report = "".join(f"{line}\n" for line in lines(whole))
    page.write_text(f"{before}{BEGIN}{report}{END}{after}", encoding="utf-8")


def lines(whole: dict[str, Any]) -> Iterator[str]:
    command = shlex.join(["python3", "tests/proofs/reliability", *whole["arguments"]])
    yield f"`{command}`, on {whole['server']}, {whole['versions']},"
    yield f"with a lock of {whole['lock seconds']:g} seconds, on {whole['processors']} processors, in {minutes(whole)}."
    yield ""
    yield f"The older worker was {whole['old version']}."
    yield ""
    yield from table("what", "figure", figures(whole))
    yield ""
    yield from table("what was looked for, offline", "violations", named(whole["invariants"].items()))
    yield ""
    yield from table("fault", "times", sorted(whole["fault kinds"].items()))
    for name, reason in whole["skipped"].items():
        yield f"| {name} | skipped: {reason} |"


def minutes(whole: dict[str, Any]) -> str:
    return f"{whole['seconds'] / 60:.0f} minutes"


def figures(whole: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "jobs that were committed", number(whole["jobs"])
    yield (
        "messages beside them, of schedules, hostile logins and whoever sends poison",
        number(whole["messages of others"]),
    )
    durable = ", ".join(f"{number(count)} {name}" for name, count in whole["durable"].items())
    yield "of them durable", durable
    yield "attempts that began", number(whole["runs"])
    yield "ends in the history", ", ".join(f"{number(count)} {status}" for status, count in by_count(whole["ends"]))
    yield "enqueues that were rolled back", number(whole["rolled back"])
    yield "changes of messages", number(whole["changes"])
    yield "faults", f"{whole['faults done']} of {whole['kinds of faults']} kinds"
    yield "attempts by worker", ", ".join(f"{number(count)} {name}" for name, count in by_count(whole["begun by"]))
    ended = whole["worker processes that ended"]
    yield (
        "worker processes that ended, by exit code",
        ", ".join(f"{count} with {code}" for code, count in ended.items()),
    )
    yield "looks at the counts of channels", number(whole["recounts"])
    yield "from SIGKILL of a worker until its job begins again", seconds(whole["recovery after a worker kill"])
    yield "from the restart of PostgreSQL until the next job has ended", seconds(whole["recovery after a restart"])
    if went := whole["work went on after a restart"]:
        yield (
            "the same in the storm, with other faults at the same time",
            f"{went[0]} to {went[-1]} s, {len(went)} times",
        )
    yield from waits(whole["bystanders"])
    yield f"the slowest of {whole['stops']} stops", f"{whole['slowest stop']} s"
    yield "from the last fault to the empty queue", f"{whole['seconds to the end']} s"
    yield "**lost, twice, or in the wrong place**", f"**{sum(whole['invariants'].values())}**"


def waits(whole: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Of bystanders: the page says what that is."""
    for name in ("calm", "beside faults", "while nobody could work"):
        if (of := whole[name])["jobs"]:
            figures = ", ".join(f"{1000 * of[percent]:.0f} ms {percent}" for percent in ("p50", "p90", "p99", "max"))
            yield f"waits of bystanders, {name}", f"{figures}, of {number(of['jobs'])} jobs"
    if whole["times as long"]:
        yield "**p99 of bystanders beside faults, against a calm**", f"**{whole['times as long']:.2f} times**"
    refused = f"{whole['refused']} beside faults, {whole['refused while nobody could work']} while nobody could work"
    yield "bystanders that could not be enqueued", refused


def table(first: str, second: str, rows: Any) -> Iterator[str]:
    yield f"| {first} | {second} |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {name} | {value} |"


def named(rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Functions, by what they look for."""
    for name, value in rows:
        yield name.replace("_", " "), value


def by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])


def number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def seconds(values: list[float]) -> str:
    return ", ".join(f"{each:.2f} s" for each in values)
