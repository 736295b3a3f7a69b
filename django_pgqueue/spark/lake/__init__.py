"""The lake: a folder of Delta tables.

>>> from django_pgqueue.spark.lake import read_lake  # doctest: +SKIP
>>> read_lake(spark, "/data/jobs").where("status = 'failed'").count()  # doctest: +SKIP
"""

from django_pgqueue.spark.lake.convert import convert
from django_pgqueue.spark.lake.errors import LakeConflict, LakeError, NewerLake, NotALake, NotShared, OldLake
from django_pgqueue.spark.lake.lake import DataFile, Lake, Version
from django_pgqueue.spark.lake.reading import read_lake

__all__ = [
    "DataFile",
    "Lake",
    "LakeConflict",
    "LakeError",
    "NewerLake",
    "NotALake",
    "NotShared",
    "OldLake",
    "Version",
    "convert",
    "read_lake",
]
