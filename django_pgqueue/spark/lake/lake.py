"""A lake and its versions.

A version is a manifest.  A run first writes its data files, under names that no other run uses.  Then it makes the next
manifest: a single file, made as a whole or not at all, by only one of several runs.  Readers follow a manifest, so they
never see half a run, and a killed run leaves only files that no manifest names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue.spark.lake.errors import LakeConflict, NotALake
from django_pgqueue.spark.lake.files import files_at
from django_pgqueue.spark.lake.manifest import Manifest
from django_pgqueue.spark.session import check_here

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake.files import Files

MANIFESTS = "_pgqueue/manifests"
STAGING = "_pgqueue/staging"
DIGITS = 12


class Lake:
    """A folder with a manifest.

    >>> Lake.open(spark, "/data/jobs").manifest().position  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, files: Files) -> None:
        check_here(spark)
        self.spark = spark
        self.files = files

    @classmethod
    def open(cls, spark: SparkSession, path: str | os.PathLike[str]) -> Lake:
        lake = cls(spark, files_at(path, spark))
        if not lake.versions():
            message = f"There is no lake at {lake.root}: no manifest in {lake.files.url(MANIFESTS)}. Export one first."
            raise NotALake(message)
        return lake

    @classmethod
    def open_or_make(cls, spark: SparkSession, path: str | os.PathLike[str]) -> Lake:
        """Opens a lake, or makes one in a folder that is empty or does not exist."""
        lake = cls(spark, files_at(path, spark))
        if not lake.versions():
            if strange := [name for name in lake.files.names("") if name != "_pgqueue"]:
                message = (
                    f"{lake.root} is not a lake of django_pgqueue: it contains {strange[0]!r}, and no manifest. Name a "
                    "folder that is empty or does not exist."
                )
                raise NotALake(message)
            lake._create(Manifest.new())
        lake.manifest()
        return lake

    @property
    def root(self) -> str:
        return self.files.root

    def versions(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self.files.names(MANIFESTS) if name.endswith(".json")]
        return sorted(int(name) for name in names if name.isdigit())

    def manifest(self, version: int | None = None) -> Manifest:
        """Returns the current manifest, or an older one that still exists."""
        path = manifest_path(max(self.versions()) if version is None else version)
        return Manifest.from_json(self.files.read(path), self.files.url(path))

    def commit(self, before: Manifest, *, written_by: str, **changes: Any) -> Manifest:
        """Makes the version after ``before`` the current one, unless another run has made one."""
        manifest = before.next(written_by=written_by, **changes)
        if not self._create(manifest):
            other = self.manifest().written_by
            message = (
                f"Another process ({other}) has written {self.root} in the meantime. Nothing was written: run "
                "the command again."
            )
            raise LakeConflict(message)
        return manifest

    def _create(self, manifest: Manifest) -> bool:
        return self.files.create(manifest_path(manifest.version), manifest.to_json())


def manifest_path(version: int) -> str:
    return f"{MANIFESTS}/{version:0{DIGITS}d}.json"
