"""The tables of other queues, as jobs and schedules of this one: ``manage.py qimport``."""
