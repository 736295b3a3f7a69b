"""Writes the ends of attempts into the database."""

from django_pgqueue.worker.record.record import record
from django_pgqueue.worker.record.recorder import Recorder

__all__ = ["Recorder", "record"]
