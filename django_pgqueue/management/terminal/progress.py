"""A progress bar, if rich is installed (the extra ``cli``) and stderr is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int, str | None], None] | None]:
    """Yields a function to call with each step and, if it changes, the description; None without a bar."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console  # noqa: PLC0415 -- an extra
        from rich.progress import Progress  # noqa: PLC0415
    except ImportError:
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        step = progress.add_task(what, total=total)
        yield lambda size, words: progress.update(step, advance=size, description=words or what)
