"""The host of this process, compared with the server: its clock and, if the server runs here, the server's disks."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue.monitoring.overview import queries
from django_pgqueue.values.times import aware

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DIFFERENCE = dt.timedelta(seconds=2)
FILLING = 0.9
PROCESSES = Path("/proc")

# Only pg_read_all_settings may read settings of paths: for other roles SHOW is an error, and this view has no row.
PLACES = """
select s.setting from pg_settings s where s.name = 'data_directory' and s.setting like '/%%'
union
select pg_tablespace_location(t.oid) from pg_tablespace t where pg_tablespace_location(t.oid) like '/%%'
"""
SESSION = "select pg_backend_pid(), current_database(), coalesce(inet_client_port()::text, 'local')"


class Disk(NamedTuple):
    place: str
    free: int
    total: int
    """Bytes."""

    @property
    def used(self) -> float:
        return 1 - self.free / self.total


def clock() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def clock_ahead(*, using: str, now: Callable[[], dt.datetime] | None = None) -> dt.timedelta | None:
    """Returns by how much the clock of this host is ahead of the server's; negative: behind.  None: by very little."""
    now = now or clock
    before = now()
    theirs = aware(queries.rows("select clock_timestamp()", using=using, settings={})[0][0])
    after = now()
    # The server reads its clock between the two readings here: a slow network does not count as a difference.
    if before - theirs > MAX_DIFFERENCE:
        return before - theirs
    return after - theirs if theirs - after > MAX_DIFFERENCE else None


def filling_disks(*, using: str) -> list[Disk]:
    """Returns the disks of the server that are nearly full.  SQL does not know the free space of another host."""
    if not _server_is_here(using=using):
        return []
    found: dict[int, Disk] = {}
    for (place,) in sorted(queries.rows(PLACES, using=using, settings={})):
        try:
            device, usage = Path(place).stat().st_dev, shutil.disk_usage(place)
        except OSError:  # this account may not read the parent folder
            continue
        disk = Disk(place, usage.free, usage.total)
        if disk.used >= FILLING:
            found.setdefault(device, disk)
    return list(found.values())


def _server_is_here(*, using: str) -> bool:
    """Whether the backend of this session runs on this host.  Behind a tunnel or a pooler, addresses cannot show it."""
    [(pid, database, port)] = queries.rows(SESSION, using=using, settings={})
    try:
        title = (PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return title.startswith("postgres:") and f" {database} " in title and port in title
