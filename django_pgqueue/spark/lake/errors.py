"""Errors of a lake.  The docstring of a class is its default message."""

from __future__ import annotations

from django_pgqueue.spark.errors import SparkQueueError


class LakeError(SparkQueueError):
    """Something is wrong with the lake."""


class NotALake(LakeError):
    """The folder is none of ours."""


class OldLake(LakeError):
    """The lake has the format of an earlier release. Convert it."""


class NewerLake(LakeError):
    """The lake was written by a newer version."""


class LakeConflict(LakeError):
    """Somebody else writes this lake. Nothing was written."""


class NotShared(LakeError):
    """The executors do not share the driver's disk. Nothing was made visible."""
