"""What is wrong with a queue and its database, and what to do about it: ``manage.py qdoctor``."""

from django_pgqueue.doctor.examination import examine
from django_pgqueue.doctor.finding import KINDS, Finding, Kind, Severity
from django_pgqueue.doctor.patient import Patient

__all__ = ["KINDS", "Finding", "Kind", "Patient", "Severity", "examine"]
