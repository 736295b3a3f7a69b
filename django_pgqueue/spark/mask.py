"""Masks: keyed digests in the place of values.  Equal values stay equal, and nobody reads them without the key.

The key comes from an environment variable, as the URL of the database does, and its digest is never a value.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.schema import JSON_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from django_pgqueue.spark.options import PipelineOptions

SHORTEST = 16
"""Characters of a key."""
DIGEST_BYTES = 16


def key(options: PipelineOptions) -> bytes:
    """Returns the key of the masks in this process."""
    name = options.mask_key_variable
    if len(value := os.environ.get(name, "")) < SHORTEST:
        state = f"has {len(value)} characters" if value else "is not set"
        message = (
            f"Option mask needs a secret key of {SHORTEST} characters or more, and the environment variable {name} "
            f"{state} in this process (option maskKeyVariable). Set it before Spark starts, on the driver and on each "
            "executor, and keep it: only the same key gives the same masks."
        )
        raise InvalidOption(message)
    return hashlib.sha256(value.encode()).digest()


def key_id(key: bytes) -> str:
    """Returns what tells one key from another, and does not give the key away."""
    return hashlib.blake2b(b"key", key=key, digest_size=8).hexdigest()


def masked(batch: pa.RecordBatch, names: tuple[str, ...], key: bytes) -> pa.RecordBatch:
    """Returns the batch with masks in the columns that ``names`` has.  A null stays null."""
    for number, name in enumerate(batch.schema.names):
        if name in names:
            batch = batch.set_column(number, batch.schema.field(number), _masks(name, batch.column(number), key))
    return batch


def _masks(name: str, column: pa.Array, key: bytes) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 -- only where there are rows

    quote = '"' if name in JSON_COLUMNS else ""  # what was JSON stays JSON
    values = column.dictionary_encode()
    digests = [
        quote + hashlib.blake2b(value.encode(), key=key, digest_size=DIGEST_BYTES).hexdigest() + quote
        for value in values.dictionary.to_pylist()
    ]
    return pa.array(digests, column.type).take(values.indices)
