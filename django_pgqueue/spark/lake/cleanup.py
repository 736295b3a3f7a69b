"""Deletes the files that killed runs and compaction have left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.spark.lake.lake import MANIFESTS, STAGING, manifest_path
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    from django_pgqueue.spark.lake.lake import Lake

KEPT_SECONDS = 3600.0
"""Time for which a reader may use a manifest that it has read, and a run its unpublished files."""
KEPT_VERSIONS = 10


def tidy(lake: Lake, *, kept_seconds: float = KEPT_SECONDS) -> int:
    """Deletes old manifests, files that no other manifest names, and old staging folders.  Returns how many files."""
    deleted = 0
    ages = {entry.path: entry.age_seconds for entry in lake.files.walk(MANIFESTS)}
    versions = lake.versions()
    for version in versions[: -KEPT_VERSIONS if kept_seconds else -1]:
        if ages.get(manifest_path(version), 0) > kept_seconds:
            lake.files.delete(manifest_path(version))
    named = {
        file.path for version in lake.versions() for files in lake.manifest(version).tables.values() for file in files
    }
    for table in SCHEMAS:
        for entry in list(lake.files.walk(table)):
            if entry.path not in named and entry.age_seconds >= kept_seconds:
                lake.files.delete(entry.path)
                deleted += 1
    return deleted + _tidy_staging(lake, kept_seconds)


def _tidy_staging(lake: Lake, kept_seconds: float) -> int:
    """Deletes whole runs, by the age of their youngest file."""
    youngest: dict[str, float] = {}
    count = 0
    for entry in list(lake.files.walk(STAGING)):
        run = entry.path.removeprefix(f"{STAGING}/").partition("/")[0]
        youngest[run] = min(youngest.get(run, entry.age_seconds), entry.age_seconds)
        count += 1
    old = [run for run, age in youngest.items() if age >= kept_seconds]
    for run in old:
        lake.files.delete(f"{STAGING}/{run}")
    return count if len(old) == len(youngest) else 0
