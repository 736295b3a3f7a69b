"""Masks: keyed digests in the place of values.  Equal values stay equal, and nobody reads them without the key.

The key comes from an environment variable, as the URL of the database does, and its digest is never a value.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from django_pgqueue.spark.errors import InvalidOption

if TYPE_CHECKING:
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


def digest(value: str, key: bytes) -> str:
    return hashlib.blake2b(value.encode(), key=key, digest_size=DIGEST_BYTES).hexdigest()
