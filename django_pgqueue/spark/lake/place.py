"""Where a lake is: a folder, or a prefix of an object store.  Tasks of executors are sent one."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileSelector, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from django_pgqueue.spark.lake.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

MISTAKEN = re.compile(r"[*?\[\]{}\\\x00-\x1f\x7f\ud800-\udfff]|%[0-9A-Fa-f]{2}")
STORES = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs")
LOG = "_delta_log"
S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}
"""Hadoop's settings below ``fs.s3a.``, and what deltalake calls them."""
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""Of a URL.  A single letter is a drive."""
AMAZON = "s3.amazonaws.com"
"""The endpoint that Spark sets when nobody does: the one of the region is the right one."""


@dataclass(frozen=True, slots=True)
class Place:
    url: str
    """The absolute path of a folder, or a URL of a store."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Addresses and keys of the store, as deltalake takes them."""

    @classmethod
    def of(cls, path: str | os.PathLike[str], spark: SparkSession) -> Place:
        text = os.fspath(path)
        scheme = SCHEME.match(text)
        if scheme is None:
            return cls.of_folder(text)
        shown = re.sub(r"\?.*", "?…", text, flags=re.DOTALL)  # the rest may be a key of the store
        shown = shown.encode(errors="backslashreplace").decode()
        if scheme[1].lower() not in {"file", *STORES}:
            message = f"A lake is a folder, or a URL that begins with {', '.join(STORES)}, and {shown} is neither."
            raise LakeError(message)
        if found := re.search(r"[?#\[\]\\^|\ud800-\udfff]", text):
            message = f"The URL of a lake has no {found[0]!r}, as {shown} has: deltalake cannot use it. Rename it."
            raise LakeError(message)
        address = urlsplit(text)
        if address.scheme == "file":
            if address.netloc not in {"", "localhost"}:
                message = f"{text} is a folder of the machine {address.netloc}. For one of this machine: file:///folder"
                raise LakeError(message)
            return cls.of_folder(unquote(address.path))
        hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- spark.hadoop.* in Java's form
        return cls(text.rstrip("/"), storage_options(text, hadoop.get))

    @classmethod
    def of_folder(cls, path: str) -> Place:
        if not path:
            message = "The path of a lake is empty. Name a folder, or a URL."
            raise LakeError(message)
        if path.startswith("~"):
            message = f"The path {path!r} begins with ~, which only a shell replaces. Write the whole path of the lake."
            raise LakeError(message)
        url = str(Path(path).absolute())
        if found := MISTAKEN.search(url):
            message = (
                f"The path of a lake has no {found[0]!r}, as {url!r} has: for Spark it is a pattern, for deltalake "
                "another folder, or it is not UTF-8. Rename the folder."
            )
            raise LakeError(message)
        return cls(url)

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url}/{name}", self.options)

    @property
    def is_folder(self) -> bool:
        return "://" not in self.url

    @property
    def files(self) -> FileSystem:
        """Its files by their relative paths, for executors too: no jar is needed."""
        if self.is_folder:
            return SubTreeFileSystem(self.url, LocalFileSystem())
        from django_pgqueue.spark.lake.store import Store  # noqa: PLC0415

        return PyFileSystem(Store(self.url, dict(self.options)))

    def names(self) -> list[str]:
        found = self.files.get_file_info(FileSelector("", allow_not_found=True))
        return sorted(entry.base_name for entry in found)

    def sizes(self, paths: list[str]) -> list[int | None]:
        """Returns the sizes of files; None: there is none."""
        return [entry.size for entry in self.files.get_file_info(paths)]

    def sync(self, *paths: str) -> None:
        """Makes files durable, with their folders.  A store has done so when it has answered."""
        if self.is_folder:
            for path in paths:
                sync(Path(self.url, path))
            for folder in {Path(self.url, path).parent for path in paths}:
                sync(folder)

    def sync_log(self, since: int) -> None:
        """Makes commits durable: deltalake does not, and PostgreSQL drops what it believes to be here."""
        if self.is_folder:
            for path in Path(self.url, LOG).iterdir():
                number = path.name.partition(".")[0]
                if path.name == "_last_checkpoint" or (number.isdigit() and int(number) >= since):
                    with suppress(FileNotFoundError):  # the draft of another run's commit, which has just got its name
                        sync(path)
            sync(Path(self.url, LOG))
            sync(Path(self.url))


def storage_options(url: str, setting: Any) -> dict[str, str]:
    """Returns Hadoop's settings of a store as deltalake takes them.  What nobody set comes from the environment.

    >>> known = {"fs.s3a.endpoint": "http://store:9000", "fs.s3a.access.key": "a", "fs.s3a.bucket.data.access.key": "b"}
    >>> storage_options("s3a://data/jobs", known.get)
    {'AWS_ACCESS_KEY_ID': 'b', 'AWS_ENDPOINT_URL': 'http://store:9000', 'AWS_ALLOW_HTTP': 'true'}
    >>> storage_options("gs://data/jobs", {"fs.gs.auth.service.account.json.keyfile": "/run/key.json"}.get)
    {'GOOGLE_SERVICE_ACCOUNT': '/run/key.json'}
    >>> nodes = {"dfs.ha.namenodes.shop": "a, b", "dfs.namenode.rpc-address.shop.a": "a:8020"}
    >>> storage_options("hdfs://shop/jobs", nodes.get)
    {'dfs.ha.namenodes.shop': 'a, b', 'dfs.namenode.rpc-address.shop.a': 'a:8020'}
    >>> storage_options("abfss://data@my.dfs.host/jobs", {"fs.azure.account.key.my.dfs.host": "k"}.get)
    {'AZURE_STORAGE_ACCOUNT_KEY': 'k'}
    """
    address = urlsplit(url)
    azure = {f"fs.azure.account.key.{address.hostname}": "AZURE_STORAGE_ACCOUNT_KEY"}
    google = {"fs.gs.auth.service.account.json.keyfile": "GOOGLE_SERVICE_ACCOUNT"}
    known = {"gs": google, "abfs": azure, "abfss": azure}.get(address.scheme, {})
    if address.scheme == "hdfs":
        known = {name: name for name in hadoop_names(address.netloc, setting)}
    found = {name: value for key, name in known.items() if (value := setting(key))}
    if address.scheme in {"s3", "s3a"}:
        for key, name in S3.items():
            value = setting(f"fs.s3a.bucket.{address.netloc}.{key}") or setting(f"fs.s3a.{key}")
            if value and value != AMAZON:
                found[name] = value
        if (endpoint := found.get("AWS_ENDPOINT_URL")) is not None:
            if "://" not in endpoint:
                is_plain = setting("fs.s3a.connection.ssl.enabled") == "false"
                endpoint = found["AWS_ENDPOINT_URL"] = f"{'http' if is_plain else 'https'}://{endpoint}"
            if endpoint.startswith("http:"):
                found["AWS_ALLOW_HTTP"] = "true"
    return found


def hadoop_names(service: str, setting: Any) -> Iterator[str]:
    """Yields Hadoop's settings that say where the name nodes are.  Without a service it is the default one."""
    if not service:
        yield "fs.defaultFS"
        service = urlsplit(setting("fs.defaultFS") or "").netloc
    yield f"dfs.ha.namenodes.{service}"
    for node in (setting(f"dfs.ha.namenodes.{service}") or "").split(","):
        yield f"dfs.namenode.rpc-address.{service}.{node.strip()}"


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
