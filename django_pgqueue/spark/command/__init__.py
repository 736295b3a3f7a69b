"""The command line of the pipeline: ``manage.py qpipeline`` and ``python -m django_pgqueue.spark`` are the same."""

from django_pgqueue.spark.command.arguments import add_arguments
from django_pgqueue.spark.command.steps import run

__all__ = ["add_arguments", "run"]
