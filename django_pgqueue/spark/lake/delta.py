"""The package ``deltalake``, or an error that says how to get it."""

from __future__ import annotations

from django_pgqueue.distribution import install_command
from django_pgqueue.spark.lake.errors import LakeError

try:
    from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction
except ImportError as missing:
    message = f"A lake needs the package deltalake. Install the extra spark: {install_command('spark')}"
    raise LakeError(message) from missing

__all__ = [
    "AddAction",
    "CommitFailedError",
    "CommitProperties",
    "DeltaError",
    "DeltaTable",
    "QueryBuilder",
    "Schema",
    "Transaction",
    "write_deltalake",
]
