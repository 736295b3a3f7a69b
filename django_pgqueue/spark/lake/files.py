"""The few file operations that a lake needs, for local folders and for Hadoop's file systems (hdfs, s3a, gs, …)."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class Entry(NamedTuple):
    path: str
    """Relative to the lake."""
    bytes: int
    age_seconds: float


class Files(Protocol):
    """Paths are relative to the root, with slashes."""

    root: str

    def url(self, path: str) -> str: ...
    def read(self, path: str) -> bytes: ...
    def names(self, folder: str) -> list[str]:
        """Returns the names directly in a folder; none where there is no folder."""
        ...

    def walk(self, folder: str) -> Iterator[Entry]:
        """Yields all files below a folder."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Makes a file as a whole or not at all.  Returns False if there was one already."""
        ...

    def move(self, source: str, target: str) -> None: ...
    def delete(self, path: str) -> None: ...


def files_at(path: str | os.PathLike[str], spark: SparkSession) -> Files:
    """A path without a scheme is a folder of this machine, whatever Hadoop's default is."""
    text = os.fspath(path)
    scheme = urlsplit(text).scheme
    if scheme == "file":
        return LocalFiles(Path(unquote(urlsplit(text).path)))
    # A single letter is a drive, not a scheme.
    return HadoopFiles(spark, text) if len(scheme) > 1 else LocalFiles(Path(text))


class LocalFiles:
    def __init__(self, root: Path) -> None:
        self.folder = root.absolute()
        self.root = str(self.folder)

    def url(self, path: str) -> str:
        # Not as_uri(): Spark takes the path literally and does not decode percent signs.
        return f"file://{(self.folder / path).as_posix()}"

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.folder / folder).iterdir())
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[Entry]:
        now = time.time()
        for file in sorted((self.folder / folder).rglob("*")):
            with suppress(FileNotFoundError):
                if file.is_file():
                    status = file.stat()
                    yield Entry(file.relative_to(self.folder).as_posix(), status.st_size, now - status.st_mtime)

    def create(self, path: str, content: bytes) -> bool:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, target)  # unlike a rename, a link fails where there is a file
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        sync(target.parent)
        return True

    def move(self, source: str, target: str) -> None:
        new = self.folder / target
        new.parent.mkdir(parents=True, exist_ok=True)
        sync(self.folder / source)  # must be as durable as the manifest that will name it
        (self.folder / source).replace(new)
        sync(new.parent)

    def delete(self, path: str) -> None:
        whole = self.folder / path
        if whole.is_dir():
            shutil.rmtree(whole, ignore_errors=True)
        else:
            whole.unlink(missing_ok=True)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFiles:
    """Any file system that Spark itself can write to, through Hadoop's classes in the driver's JVM."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- the only way there
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._system: Any = self._path("").getFileSystem(hadoop)
        self._base = str(self._system.makeQualified(self._path("")).toUri().getPath()).rstrip("/")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    def url(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def read(self, path: str) -> bytes:
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self, folder: str) -> list[str]:
        where = self._path(folder)
        if not self._system.exists(where):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(where))

    def walk(self, folder: str) -> Iterator[Entry]:
        where = self._path(folder)
        if not self._system.exists(where):
            return
        found, now = self._system.listFiles(where, True), time.time()
        while found.hasNext():
            status = found.next()
            path = str(status.getPath().toUri().getPath()).removeprefix(self._base).lstrip("/")
            yield Entry(path, int(status.getLen()), now - status.getModificationTime() / 1000)

    def create(self, path: str, content: bytes) -> bool:
        """Renames a draft where renames are atomic; object stores make a file visible only when it is closed."""
        target = self._path(path)
        if self._system.exists(target):
            return False
        if urlsplit(self.root).scheme in {"hdfs", "viewfs", "abfs", "abfss", "file"}:
            draft = self._path(f"{path}.{uuid.uuid4().hex}.draft")
            self._write(draft, content)
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(target.toUri())
            return self._renamed(context, draft, target)
        return self._write(target, content)

    def _write(self, target: Any, content: bytes) -> bool:
        try:
            stream = self._system.create(target, False)
        except Exception as error:
            if "AlreadyExists" in str(error):
                return False
            raise
        try:
            stream.write(content)
        finally:
            stream.close()
        return True

    def _renamed(self, context: Any, draft: Any, target: Any) -> bool:
        options = self._jvm.org.apache.hadoop.fs.PipelineOptions.Rename
        none = self._jvm.java.lang.reflect.Array.newInstance(options.NONE.getClass(), 1)
        none[0] = options.NONE
        try:
            context.rename(draft, target, none)
        except Exception as error:
            self._system.delete(draft, False)
            if "AlreadyExists" in str(error):
                return False
            raise
        return True

    def move(self, source: str, target: str) -> None:
        new = self._path(target)
        self._system.mkdirs(new.getParent())
        if not self._system.rename(self._path(source), new):
            message = f"{self.url(source)} cannot be renamed to {self.url(target)}."
            raise OSError(message)

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)
