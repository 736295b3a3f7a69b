"""The steps of ``manage.py qpipeline`` for programs: each is a function of a session and of the path of a lake."""

from django_pgqueue.spark.pipeline.adopt import adopt
from django_pgqueue.spark.pipeline.check import check
from django_pgqueue.spark.pipeline.drop_exported import Dropped, drop_exported
from django_pgqueue.spark.pipeline.export import Exported, export
from django_pgqueue.spark.pipeline.follow import follow
from django_pgqueue.spark.pipeline.known_position import Missed, forget
from django_pgqueue.spark.pipeline.overlap import Overlap
from django_pgqueue.spark.pipeline.replay import Replayed, replay
from django_pgqueue.spark.pipeline.reporting import Reported, report
from django_pgqueue.spark.pipeline.whatif import Prediction, needed, whatif
from django_pgqueue.spark.simulation import Scenario

__all__ = [
    "Dropped",
    "Exported",
    "Missed",
    "Overlap",
    "Prediction",
    "Replayed",
    "Reported",
    "Scenario",
    "adopt",
    "check",
    "drop_exported",
    "export",
    "follow",
    "forget",
    "needed",
    "replay",
    "report",
    "whatif",
]
