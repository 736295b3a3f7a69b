"""What is wrong with a queue and its database, and what to do about it: ``manage.py qdoctor``."""

from django_pgqueue.monitoring.doctor.examination import examine
from django_pgqueue.monitoring.doctor.finding import KINDS, Finding, Kind, Severity
from django_pgqueue.monitoring.doctor.subject import Subject

__all__ = ["KINDS", "Finding", "Kind", "Severity", "Subject", "examine"]
