"""Turns a lake of an earlier release, whose files a manifest lists, into Delta tables."""

from __future__ import annotations

import datetime as dt
import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, Transaction

from django_pgqueue.spark.lake.data_files import file_at
from django_pgqueue.spark.lake.errors import LakeConflict, LakeError, NotALake
from django_pgqueue.spark.lake.lake import FORMAT, OLD_MANIFESTS, REPORTED, Lake, create, position_id
from django_pgqueue.spark.lake.place import LOG, Place, sync
from django_pgqueue.spark.lake.schema import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUSY = "Another process writes this lake. Stop it, and convert again."


def convert(spark: SparkSession, path: str | os.PathLike[str]) -> int:
    """Commits the files of the last manifest, with its position.  Returns how many.

    A run that was killed can be repeated: the table of attempts comes last, and makes it a lake.
    """
    lake = Lake(spark, path)
    if lake.exists:
        return 0
    manifest = sealed(lake.place / OLD_MANIFESTS)
    if manifest["source"] is None:
        message = f"{lake.root} has never had an export. Delete the folder, and export again."
        raise LakeError(message)
    tables = sorted(manifest["tables"].items(), key=lambda pair: pair[0] == "attempts")
    return sum(_made(lake, manifest, name, files) for name, files in tables if not lake.has(name))


def sealed(place: Place) -> dict[str, Any]:
    """Returns the last manifest, after which an earlier release makes no other: it takes the format for a newer one."""
    numbers = sorted(int(stem) for name in place.names() if (stem := name.removesuffix(".json")).isdigit())
    if not numbers:
        message = f"There is no manifest in {place.url}: there is nothing to convert."
        raise NotALake(message)
    last: dict[str, Any] = json.loads(read(place, f"{numbers[-1]:012d}.json"))
    if last["schema_version"] < int(FORMAT):
        last |= {"schema_version": int(FORMAT), "version": numbers[-1] + 1, "written_by": "convert"}
        put(place, f"{numbers[-1] + 1:012d}.json", json.dumps(last, indent=1, ensure_ascii=False).encode())
    return last


def _made(lake: Lake, manifest: dict[str, Any], name: str, files: list[dict[str, Any]]) -> int:
    place, settings, marks = lake.place / name, {}, []
    if name == "attempts":
        settings = {
            "pgqueue.format": FORMAT,
            "pgqueue.lake_id": manifest["lake_id"],
            "pgqueue.source": manifest["source"],
        }
        marks = [Transaction(position_id(manifest["source"]), int(manifest["position"]))]
    elif name == "report_hour" and (reported := manifest["notes"].get("reported_until")):
        marks = [Transaction(REPORTED, dt.date.fromisoformat(reported).toordinal())]
    known = [file_at(place.files, copied(place, file)) for file in files]
    # Made aside, and copied as one commit: the table appears with its files and its position, or not at all.  Paths in
    # it are relative.
    with TemporaryDirectory() as folder:
        draft = Place(folder)
        table = create(draft, SCHEMAS[name], settings)
        table.create_write_transaction(
            [file.add() for file in known],
            "append",
            table.schema(),
            ["date"],
            commit_properties=CommitProperties(app_transactions=marks, custom_metadata={"written_by": "convert"}),
        )
        actions = [line for commit in (0, 1) for line in read(draft, f"{LOG}/{commit:020d}.json").splitlines()]
    place.sync(*(file.path for file in known))
    _, *infos = [line for line in actions if b'"commitInfo"' in line]
    # A store has put the seal unconditionally: an earlier release may have written its own manifest over it.
    if sealed(lake.place / OLD_MANIFESTS) != manifest:
        raise LakeConflict(BUSY)
    put(place, f"{LOG}/{0:020d}.json", b"\n".join(line for line in actions if line not in infos))
    place.sync_log(0)
    return len(known)


def copied(place: Place, file: dict[str, Any]) -> str:
    """Copies a file to a path without the folder of its queue, which Polars takes for a partition of the table."""
    path = f"date={file['date']}/{file['path'].rpartition('/')[2]}"
    old = file["path"].partition("/")[2]
    if place.sizes([path]) != place.sizes([old]):
        copy(place, old, path)
    return path


def copy(place: Place, old: str, new: str) -> None:
    """Gives a file of a folder a second name; a store copies it."""
    if place.is_folder:
        Path(place.url, new).parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):  # another run has just made it
            Path(place.url, new).hardlink_to(Path(place.url, old))
    else:
        put(place, new, read(place, old))


def read(place: Place, path: str) -> bytes:
    with place.files.open_input_stream(path) as file:
        return bytes(file.readall())


def put(place: Place, path: str, content: bytes) -> None:
    """Makes a file as a whole, where there is none.  In a store deltalake does that for its own commits only."""
    if not place.is_folder:
        with place.files.open_output_stream(path) as file:
            file.write(content)
        return
    target = Path(place.url, path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(exist_ok=True)
    draft.write_bytes(content)
    sync(draft)
    try:
        target.hardlink_to(draft)  # fails where another run has just made it
    except FileExistsError as error:
        raise LakeConflict(BUSY) from error
    finally:
        draft.unlink()
    sync(target.parent)
