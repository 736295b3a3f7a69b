"""A manifest: everything that a version of the lake consists of, in one small JSON file."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark.lake.errors import NewerLake, NotALake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = "pgqueue-lake"
SCHEMA_VERSION = 2
PLAIN_SCHEMA_VERSION = 1
"""Of a lake that has all columns, without masks: releases that know no others may go on with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file with rows of one day, and of one queue where the table has queues."""

    path: str
    date: str
    queue: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    version: int
    lake_id: str
    schema_version: int = PLAIN_SCHEMA_VERSION
    source: str | None = None
    """The database that the attempts come from: the cluster's identifier and the database's name."""
    position: str | None = None
    """How far the history has been read: an offset of the data source."""
    written_by: str = "init"
    written_at: str = ""
    tables: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Values that commands keep for their next run."""

    @classmethod
    def new(cls) -> Manifest:
        return cls(version=0, lake_id=uuid.uuid4().hex, written_at=now())

    def next(self, *, written_by: str, **changes: Any) -> Manifest:
        return replace(self, version=self.version + 1, written_by=written_by, written_at=now(), **changes)

    def files(self, table: str, *, since: dt.date | None = None, until: dt.date | None = None) -> list[DataFile]:
        """Returns the files of a table, of the days from ``since`` to ``until``, both inclusive."""
        return [
            file
            for file in self.tables.get(table, ())
            if (since is None or file.date >= since.isoformat()) and (until is None or file.date <= until.isoformat())
        ]

    def with_files(
        self, table: str, added: Iterable[DataFile], *, removed: Iterable[DataFile] = ()
    ) -> dict[str, tuple[DataFile, ...]]:
        gone = {file.path for file in removed}
        kept = [file for file in self.tables.get(table, ()) if file.path not in gone]
        files = sorted([*kept, *added], key=lambda file: (file.date, file.queue, file.path))
        return {**self.tables, table: tuple(files)}

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Manifest:
        try:
            fields = json.loads(text)
            kind = fields.pop("format")
            version = fields["schema_version"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{where} is not a manifest of a lake: {error!r}."
            raise NotALake(message) from error
        if kind != FORMAT:
            message = f"{where} is a manifest of {kind!r}, not of {FORMAT!r}."
            raise NotALake(message)
        if version > SCHEMA_VERSION:
            message = (
                f"{where} has schema version {version}; this version of django_pgqueue reads and writes up to "
                f"{SCHEMA_VERSION}. Update django_pgqueue, or use another folder."
            )
            raise NewerLake(message)
        tables = {name: tuple(DataFile(**file) for file in files) for name, files in fields.pop("tables").items()}
        return cls(**fields, tables=tables)


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
