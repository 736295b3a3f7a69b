"""The command line of the pipeline: ``manage.py qpipeline`` and ``python -m django_pgqueue.spark`` are the same."""

from django_pgqueue.spark.command.arguments import add_arguments
from django_pgqueue.spark.command.steps import run

__all__ = ["INTERRUPTED", "INTERRUPTED_CODE", "add_arguments", "run"]

INTERRUPTED = "Interrupted. The lake has no partial results: the next run repeats the work that had not become visible."
INTERRUPTED_CODE = 130
"""The exit code of shells for a program that Ctrl-C has ended."""
