"""Checks that find problems of a queue and its database, each with a remedy: ``manage.py qdoctor``."""

from django_pgqueue.monitoring.doctor.examination import examine
from django_pgqueue.monitoring.doctor.finding import KINDS, Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import Subject

__all__ = ["KINDS", "Finding", "Kind", "Severity", "Subject", "examine"]
