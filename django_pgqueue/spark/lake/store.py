"""The files of an object store, through the client that deltalake has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler


class Store(DeltaStorageHandler):
    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(Upload(self._handler.open_output_stream(path, metadata)))


class Upload:
    """A stream of deltalake takes bytes only, and Arrow writes buffers too."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, data: Any) -> int:
        return int(self.stream.write(bytes(data)))
