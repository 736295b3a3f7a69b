"""Finds disks of the server that fill up, if it runs on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview import host
from django_pgqueue.values.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

NEARLY_FULL = 0.95
ROOM_TO_WRITE = 64 * 2**20
"""The copy of the queue takes some megabytes of tables and log, and the next file of the log takes 16."""

FULL_DISK = Kind(
    "full-disk",
    Severity.WARNING,
    "When the disk is full, PostgreSQL stops, and with it all jobs. Free space: see the findings replication-slot, "
    "old-transaction, history-overdue and bloated-table, and check for an archive_command that fails.",
)


def full(patient: Subject) -> Iterator[Finding]:
    for disk in host.filling_disks(using=patient.using):
        yield FULL_DISK.found(
            f"The disk of {disk.place} is {disk.used:.0%} full: {size(disk.free)} of {size(disk.total)} are free.",
            f"df -h {disk.place}",
            severity=Severity.ERROR if disk.used >= NEARLY_FULL else None,
            place=disk.place,
            used=disk.used,
            free_bytes=disk.free,
        )


def leaves_no_room(finding: Finding) -> bool:
    """Whether a finding says that a check which writes could stop the server."""
    return finding.name == FULL_DISK.name and finding.values["free_bytes"] < ROOM_TO_WRITE
