"""The report: statistics of a lake's attempts by the hour, as functions from DataFrames to DataFrames."""

from django_pgqueue.spark.report.histograms import percentiles
from django_pgqueue.spark.report.hours import errors_by_hour, hours, rollup
from django_pgqueue.spark.report.quality import Quality, quality
from django_pgqueue.spark.report.queues import queues_by_hour

__all__ = ["Quality", "errors_by_hour", "hours", "percentiles", "quality", "queues_by_hour", "rollup"]
