"""Finds disks of the server that fill up, if it runs on this host: SQL does not know the free space."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.values.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

FILLING, NEARLY_FULL = 0.9, 0.95
PROCESSES = Path("/proc")

FULL_DISK = Kind(
    "full-disk",
    Severity.WARNING,
    "When the disk is full, PostgreSQL stops, and with it all jobs. Free space: see the findings replication-slot, "
    "old-transaction, history-overdue and bloated-table, and check for an archive_command that fails.",
)

# Only pg_read_all_settings may read settings of paths: for other roles SHOW is an error, and this view has no row.
PLACES = """
select s.setting from pg_settings s where s.name = 'data_directory' and s.setting like '/%%'
union
select pg_tablespace_location(t.oid) from pg_tablespace t where pg_tablespace_location(t.oid) like '/%%'
"""
SESSION = "select pg_backend_pid(), current_database(), coalesce(inet_client_port()::text, 'local')"


def full(patient: Subject) -> Iterator[Finding]:
    if not _is_here(patient):
        return
    reported = set()
    for (place,) in sorted(patient.rows(PLACES)):
        try:
            device, usage = Path(place).stat().st_dev, shutil.disk_usage(place)
        except OSError:  # this account may not read the parent folder
            continue
        used = 1 - usage.free / usage.total
        if used >= FILLING and device not in reported:
            reported.add(device)
            yield FULL_DISK.found(
                f"The disk of {place} is {used:.0%} full: {size(usage.free)} of {size(usage.total)} are free.",
                f"df -h {place}",
                severity=Severity.ERROR if used >= NEARLY_FULL else None,
                place=place,
                used=used,
                free_bytes=usage.free,
            )


def _is_here(patient: Subject) -> bool:
    """Whether the backend of this session runs on this host.  Behind a tunnel or a pooler, addresses cannot show it."""
    [(pid, database, port)] = patient.rows(SESSION)
    try:
        title = (PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return title.startswith("postgres:") and f" {database} " in title and port in title
