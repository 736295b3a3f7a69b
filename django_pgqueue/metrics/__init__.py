"""Metrics for Prometheus, with the extra ``prometheus``.

``django_pgqueue.metrics.urls`` serves those of the queue, from the database; ``qworker --metrics-port`` those of a
worker.
"""
