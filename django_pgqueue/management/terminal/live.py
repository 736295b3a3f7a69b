"""The overview as a live table, with rich."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from django_pgqueue.consumer.wakeup import Wakeup
from django_pgqueue.management.terminal import status
from django_pgqueue.management.terminal.text import GAP, aligned
from django_pgqueue.worker.supervise.signal_handlers import handling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions, RenderResult

    from django_pgqueue.monitoring.overview import Overview, QueueOverview

HEAD_AND_REST = 2
"""Lines of the table that are no queue: its head, and the note about queues that do not fit."""


class Screen:
    """The current overview, in the current size of the window."""

    def __init__(self, database: str, interval: float) -> None:
        self.database, self.interval = database, interval
        self.whole: Overview | None = None
        self.problem: str | None = None
        self.is_last = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.whole is not None:
            yield from self._overview(self.whole, options.max_width, None if self.is_last else console.size.height)
        if self.problem is not None:
            yield Text(self.problem, style="bold red")

    def _overview(self, whole: Overview, width: int, height: int | None) -> Iterator[Text]:
        title = Text(status.head(whole, self.database), style="bold")
        if not self.is_last:
            title.append(f"  every {self.interval:g} s, Ctrl-C exits", style="not bold dim")
        warnings = [Text(f"! {text}", style="yellow") for text in status.warnings(whole)]
        told = [Text(text) for text in (status.workers(whole), status.suspended(whole)) if text]
        above, below = [title, *told, *warnings, Text()], list(self._below(whole))
        yield from above
        if not whole.queues:
            yield Text(status.nothing())
        else:
            room = None if height is None else height - lines(above, width) - HEAD_AND_REST
            wanted = sum(1 + len(status.notes(one, whole)) for one in whole.queues)
            if room is not None and wanted + lines(below, width) > room:
                below = []  # the queues matter most
            yield from self._table(whole, width, room)
        yield from below

    def _table(self, whole: Overview, width: int, most: int | None) -> Iterator[Text]:
        """Yields as many queues as fit, in no more than ``most`` lines."""
        titles, *cells = aligned(status.rows(status.columns(whole, width), whole))
        yield Text(GAP.join(titles), style="dim underline")
        used = 0
        for number, (one, row) in enumerate(zip(whole.queues, cells, strict=True)):
            noted = status.notes(one, whole)
            used += 1 + len(noted)
            if most is not None and used > max(1, most):
                more = len(cells) - number
                words = "1 more queue does" if more == 1 else f"{more} more queues do"
                yield Text(f"{words} not fit: --queue shows some of them.", style="dim")
                return
            styled = zip(row, titles, strict=True)
            yield Text(GAP).join(Text(cell, style=tone(title.strip(), one)) for cell, title in styled)
            yield from (Text(f"  {note}", style="red" if note == "no worker" else "yellow") for note in noted)

    def _below(self, whole: Overview) -> Iterator[Text]:
        if whole.more_queues:
            yield Text("There are more queues than these.", style="dim")
        if whole.schedules:
            yield Text()
            yield Text("Next schedules")
            for name, when in status.schedules(whole):
                yield Text(f"  {name}  ").append(when, style="dim")
        if text := status.legend(whole):
            yield Text()
            yield Text(text, style="dim")


def lines(texts: list[Text], width: int) -> int:
    """Returns how many lines the texts take."""
    return sum(-(-max(1, len(text)) // width) for text in texts)


def tone(title: str, one: QueueOverview) -> str:
    if title == "Queue":
        return "bold"
    if title == "Failed 24 h" and one.failures.of_a_day:
        return "red"
    return "green" if title == "Running" and one.count.running else ""


def show(take: Callable[[], Overview | str], *, database: str, interval: float, color: bool | None) -> None:
    """Draws what ``take`` returns, until Ctrl-C.  A text is a problem, which may be over the next time."""
    console = Console(no_color=None if color is None else not color, force_terminal=True)
    screen = Screen(database, interval)
    try:
        with until_a_signal() as comes, Live(screen, console=console, screen=True, auto_refresh=False) as live:
            while True:
                found = take()
                screen.whole, screen.problem = (screen.whole, found) if isinstance(found, str) else (found, None)
                live.refresh()
                if comes(interval):
                    break
    except KeyboardInterrupt:
        pass
    # The normal screen is back: the last overview stays on it.
    screen.is_last = True
    console.print(screen)


@contextmanager
def until_a_signal() -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits for a time and returns whether Ctrl-C or SIGTERM came.  Neither raises an exception:
    at a wrong moment it would be lost, and a terminal must not be left on its alternate screen.
    """
    waker, came = Wakeup(), []

    def note(number: int, _: Any) -> None:
        came.append(number)
        waker.wake()

    def comes(seconds: float) -> bool:
        if not came:
            waker.wait(seconds)
        return bool(came)

    try:
        with handling((signal.SIGINT, signal.SIGTERM), note):
            yield comes
    finally:
        waker.close()
