"""The lake: a folder of Parquet files, and manifests that list the valid ones.

>>> from django_pgqueue.spark.lake import read_lake  # doctest: +SKIP
>>> read_lake(spark, "s3a://data/jobs").where("status = 'failed'").count()  # doctest: +SKIP
"""

from django_pgqueue.spark.lake.errors import LakeConflict, LakeError, NewerLake, NotALake, NotShared
from django_pgqueue.spark.lake.lake import Lake
from django_pgqueue.spark.lake.manifest import DataFile, Manifest
from django_pgqueue.spark.lake.reading import read_lake

__all__ = [
    "DataFile",
    "Lake",
    "LakeConflict",
    "LakeError",
    "Manifest",
    "NewerLake",
    "NotALake",
    "NotShared",
    "read_lake",
]
